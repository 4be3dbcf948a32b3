// SPDX-License-Identifier: BSL-1.0
// Training in numbers of type float, compiled once.
#include "training_run.hpp"

namespace heddle::cli {

template void train_in_threads<float>(train_arguments const&, training const&, step_report const&);
#ifdef HEDDLE_HAS_MPI
template void train_in_job<float>(train_arguments const&, training const&, mpi::communicator&, step_report const&);
#endif

} // namespace heddle::cli
