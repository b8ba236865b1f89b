# Which tests get the label long: `script/test` leaves them out, `script/test --all` runs them, too (docs/decisions/0039).
# Of what has many forms one stays: the newest TensorFlow, one MPI, one way to die. A test is long whose name matches one of
# long_tests and none of short_forms; under a sanitizer also those of whole executables. Regular expressions of CMake.
set(long_tests
    # Interpreters that load torch or TensorFlow, 2 to 3 s of a processor each.
    "^Of/TensorFlow\\." "^C10d\\." "^(C10d|Python)OnGpus\\." "^Of/C10dCases\\..*/3Ranks" "^Python\\." "^Of/PythonAnswers\\..*/4Ranks"
    # Proofs for every number of ranks and every size, of what is several algorithms.
    "^Schedules/EveryAlgorithm\\..*/hierarchical_" "^Schedules/EveryAlgorithm\\.IsProvenFor1To33Ranks/(mpi|numa|staged)_"
    "^PipelineSchedules\\.HaveTheBubblesThatTheirFormulasSay"
    # Whole pages of docs and whole programs, again and again.
    "^Examples\\.(TheTutorials|TheProfilingPages|ATrainingGoesOn|ADeviceThat|AModelOnSeveral|OneProcessTrains|HorovodsSteps)" "^RunningDocs\\." "^MpitraceDocs\\."
    "^(Ranks/Equivalence|Cycles|RestartedTraining|Works)\\." "^Processes\\.OfTwoHosts" "^Of/Faults\\.NameARankThatStops"
    "^Of/(Faults|GradientFaults)\\..*/cifar10_resnet18" "^By/SpreadModels\\..*/(interleaved|tensor)" "^Install\\..*torchrun"
    "^OfTheLoop/Faults\\.NameARankThatStops" "^Cifar10Resnet18\\.(StartsUnder|TakesItsLocalRank)" "^Training\\.Torch(sLosses|Reads)"
    "^Ranks/TrainingOn\\..*/(0|1)" "^Ranks/TrainingOn\\.TwoHosts" "^PipelineSchedules\\.AreProven"
    "^Bench\\.(Peers|CollectivesDriver|PythonDriver|TrainingDriver)" "^Soak\\." "^House\\.EveryOptionHasAnEffect"
    # Every launcher, MPI and way to look at a page.
    "^By/DigitsUnder\\..*/(Sbatch|Torchrun|IntelMpi|TfConfig|Mpich|SrunOn[12]|OpenMpiOn[12])" "^Mpi/MpiEngineUnder\\..*/openmpi" "^By/Launched.*/(impi|mpich)" "^Under/MpiEngineBetweenHosts\\..*/openmpi"
    "^Of/Mpitrace.*/(impi|mpich|debian_openmpi|debian_mpich)" "^Under/MpiEngine\\..*_(3|4)" "^UnderSlurm\\."
    "^(ReportInABrowser|TimelineInPerfetto|RunsForABrowser)\\."
    # What waits.
    "^In/NoStandstill\\.IsSeenWhereCallsEndOnTwoHosts" "^Arrival\\.(UnderTheLauncherToo|AMissingRankZeroIsNamedOverTcp|Several)"
    "^Limits\\.FewDescriptorsAreNamedByARank" "^Views\\.(TellARank|PutOutARank)" "^FoundHosts\\.MayBeSeveral"
    "^StagedRun\\.OfASlowLink" "^(ElasticJob|ParameterServers)\\.OnTwoHosts"
    "^RunOnHosts\\.(AHostThatIsSilent|AHostWhoseCable|AStoppedAgent|OneMayBeReached)" "^ViewsOnHosts\\.StartARankAgain"
    "^ParameterServers\\.(EveryTaskCounts|AllowNoRead|WaitFor)" "^ElasticJob\\.HasTheSameBits" "^ThatShareOne/AnyGpuJobs\\.NameARankThatLeaves")
set(short_forms
    "^Schedules/EveryAlgorithm\\.IsProvenAroundEverySegmentLimit/hierarchical_all_reduce"
    "^Of/TensorFlow\\.ATapesGradients[A-Za-z]*/Newest"
    "^Python\\.(ThePagesProgram|ARankThatIsKilled|HorovodsNames|AMissingLibrary|WithoutTorch|AloneItIs)"
    "^C10dOnGpus\\.CasesAreDoneByNccl" "^PythonOnGpus\\.AnswersByNccl" "^Of/Faults\\.NameARankThatStops/digits" "^Soak\\.(MismatchedCalls|KillInEachCollective|StopWithoutALauncherOfTraining)"
    "^Of/MpitraceLayout\\..*/debian_mpich" "^Under/MpiEngine\\..*/(openmpi_3|mpich_4)" "^UnderSlurm\\.RanksOfSrun")
# Of many processes whose code others run, too, proofs, and the fuzzers' corpora.
set(long_executables_under_sanitizers "^test_(fault|conformance|mpi_engine|mpitrace|gpu_jobs|core_examples|c_interface|fuzz)$")
set(long_tests_under_sanitizers
    "^Schedules/EveryAlgorithm\\." "^FlightRecord\\.ThatNeverEnds" "^Of/(Shared)?GpuRanks\\.ReduceEveryTypeByEveryOperation/[013]"
    "^AClientThatAsksForTheMost\\.In(Replies|Wills|Tiny)" "^(EventFiles|TimelineFile)\\." "^Recording\\.HasMoreCalls" "^Cost\\.")
# Of one thread, in which ThreadSanitizer finds nothing; and one that takes 15 s.
set(long_tests_under_thread_sanitizer "^(ReduceEvery|Reproducible|Pth|ReportPage)\\." "^AClientThatAsksForTheMost\\.InKeys")
# Under AddressSanitizer these have the label for_soak, too, and script/soak asan alone runs them.
set(left_to_the_soak "^(Cycles|FoundHosts|GpuJobs|Nodes|Processes|Start|UnderSlurm|ViewsOnHosts)\\.")

# lockstep_long_label(result executable test): "long", "long;for_soak", or nothing. ctest includes this file, too, for the names that it finds.
function(lockstep_long_label result executable test)
  set(${result} "" PARENT_SCOPE)
  if(LOCKSTEP_SANITIZE MATCHES address AND test MATCHES "${left_to_the_soak}")
    set(${result} long for_soak PARENT_SCOPE)
    return()
  endif()
  if(LOCKSTEP_SANITIZE)
    if(executable MATCHES "${long_executables_under_sanitizers}")
      set(${result} long PARENT_SCOPE)
      return()
    endif()
    list(APPEND long_tests ${long_tests_under_sanitizers})
    if(LOCKSTEP_SANITIZE MATCHES thread)
      list(APPEND long_tests ${long_tests_under_thread_sanitizer})
    endif()
  endif()
  foreach(pattern IN LISTS short_forms)
    if(test MATCHES "${pattern}")
      return()
    endif()
  endforeach()
  foreach(pattern IN LISTS long_tests)
    if(test MATCHES "${pattern}")
      set(${result} long PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# lockstep_label_long_tests(): at the end of a folder whose tests add_test() adds.
function(lockstep_label_long_tests)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    lockstep_long_label(long "" ${test})
    set_property(TEST ${test} APPEND PROPERTY LABELS ${long})
  endforeach()
endfunction()
