// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Reading TorchScript modules, apart from all else: `heddle-torchscript` is the same command line linked with
/// libtorch, and `heddle` hands such a run over to it.
#pragma once

#include <heddle/json/model.hpp>
#include <heddle/program/tensor.hpp>

#include <string>
#include <vector>

namespace heddle::cli {

struct torchscript_input {
    std::string name;
    heddle::tensor_shape shape;
    element_type type = element_type::float32;
};

/// Keeps what `main` was given, for another program that does the same.
void keep_arguments(char** arguments);

/// Returns the program of a module that returns its loss, for inputs named as its forward's arguments are. Does not
/// return where another program takes over. *Throws* `input_error`, `file_error`.
json::model read_torchscript(std::string const& path, std::vector<torchscript_input> const& inputs);

} // namespace heddle::cli
