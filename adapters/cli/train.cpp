// SPDX-License-Identifier: BSL-1.0
// heddle train is a program of its own, so that planning needs neither kernels of all types nor MPI.
#include "commands.hpp"
#include "program_beside.hpp"

#include <heddle/base/error.hpp>

namespace heddle::cli {

int run_train(char** argv) {
    become("heddle-train", argv);
    throw file_error("heddle-train, which trains and measures, is missing beside this command");
}

int run_profile(char** argv) { return run_train(argv); }

} // namespace heddle::cli
