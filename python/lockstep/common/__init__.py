"""What all frameworks share: the process's place in the job, sets of ranks, exceptions."""
