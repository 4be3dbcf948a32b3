// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A classifier traced by libtorch, apart from what plans it: each half takes long to compile.
#pragma once

#include <heddle/program/program.hpp>

#include <string>
#include <vector>

/// Returns the program of a TorchScript file for images of this shape. If the file's module has a second argument that
/// is the labels, it returns the loss; otherwise the loss is appended: cross-entropy, summed. *Throws* if an operator
/// has no rule.
heddle::program traced_classifier(std::string const& path, heddle::tensor_shape const& images, bool returns_loss);
