// SPDX-License-Identifier: BSL-1.0
// In `heddle`, which is not linked with libtorch: the program that is, beside this one, takes over.
#include "../program_beside.hpp"
#include "../torchscript.hpp"

#include <heddle/base/error.hpp>

namespace heddle::cli {

namespace {
char** kept_arguments = nullptr;
}

void keep_arguments(char** arguments) { kept_arguments = arguments; }

json::model read_torchscript(std::string const& path, std::vector<torchscript_input> const&) {
    become("heddle-torchscript", kept_arguments);
    throw input_error(path, "is a TorchScript module, for which heddle-torchscript is missing beside this command; "
                            "build it with libtorch and libzip, or export the module with "
                            "adapters/libtorch/export_pt2.py");
}

} // namespace heddle::cli
