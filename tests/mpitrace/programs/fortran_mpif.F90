! Two ranks, with mpif.h.
program calls
  implicit none
  include 'mpif.h'
  integer :: ierr, rank, ranks, peer, i, length, triple, requests(2)
  double precision :: values(64), results(64), time
  character(len=MPI_MAX_PROCESSOR_NAME + MPI_MAX_OBJECT_NAME) :: name
  include 'fortran_body.inc'
end program
