! Two ranks, with use mpi_f08.
program calls
  use mpi_f08
  implicit none
  integer :: ierr, rank, ranks, peer, i, length
  type(MPI_Datatype) :: triple
  type(MPI_Request) :: requests(2)
  double precision :: values(64), results(64), time
  character(len=MPI_MAX_PROCESSOR_NAME + MPI_MAX_OBJECT_NAME) :: name
  include 'fortran_body.inc'
end program
