# LOCKSTEP_SANITIZE=address,undefined or thread: any finding ends the program.
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
