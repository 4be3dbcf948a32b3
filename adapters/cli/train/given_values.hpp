// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Parameters and training data that files give in place of random ones.
#pragma once

#include "../commands.hpp"

#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/json/safetensors.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace heddle::cli {

/// The tensors of `--weights`, which are parameters and buffers, and of `--data`, which are inputs of one iteration or,
/// one after the other along the first dimension, of several; after the last iteration the data begin anew.
class given_values {
public:
    /// Reads the files' headers. *Throws* `input_error` if a file has a tensor that the program has not, or one of
    /// another shape or kind of numbers.
    given_values(train_arguments const& arguments, program const& p) : program_(p) {
        if (!arguments.weights.empty()) add(weights_.emplace(arguments.weights), false);
        if (!arguments.data.empty()) add(data_.emplace(arguments.data), true);
    }

    [[nodiscard]] bool has(tensor_id t) const { return of_.contains(t); }

    /// Returns a tensor's values in an iteration, counted from 0. *Precondition:* `has(t)`.
    template <class Scalar>
    [[nodiscard]] dense_tensor<Scalar> read(tensor_id t, std::uint64_t iteration) {
        auto const& info = program_.tensor(t);
        json::stored_tensor const& stored = *of_.at(t);
        if (info.role != tensor_role::input) return weights_->read<Scalar>(stored);
        if (stored.shape == info.shape) return data_->read<Scalar>(stored);
        auto const rows = info.shape[0];
        auto const turn = static_cast<extent>(iteration % static_cast<std::uint64_t>(stored.shape[0] / rows));
        return data_->read<Scalar>(stored, turn * rows, rows);
    }

private:
    void add(json::safetensors_file const& file, bool are_inputs) {
        for (auto const& [name, stored] : file.tensors()) {
            auto const t = find(name, are_inputs);
            if (!t)
                throw input_error(file.name() + ": " + printable(name),
                                  std::string("is no ") + (are_inputs ? "input" : "parameter") + " of the model");
            require_fit(file.name() + ": " + printable(name), stored, program_.tensor(*t), are_inputs);
            of_.emplace(*t, &stored);
        }
    }
    [[nodiscard]] std::optional<tensor_id> find(std::string const& name, bool is_input) const {
        for (tensor_id t = 0; t < program_.tensor_count(); ++t) {
            auto const& info = program_.tensor(t);
            bool const is_source = info.role != tensor_role::value && (info.role == tensor_role::input) == is_input;
            if (is_source && info.name == name && program_.data_of(t) == t) return t;
        }
        return {};
    }
    static void require_fit(std::string const& place, json::stored_tensor const& stored, tensor_info const& info,
                            bool is_input) {
        if (is_floating(stored.type) != is_floating(info.type))
            throw input_error(place, is_floating(info.type) ? "has whole numbers, expected floating-point ones"
                                                            : "has floating-point numbers, expected whole ones");
        bool const is_several = is_input && !info.shape.empty() && info.shape[0] > 0 &&
                                stored.shape.size() == info.shape.size() && stored.shape[0] >= info.shape[0] &&
                                stored.shape[0] % info.shape[0] == 0 &&
                                std::equal(stored.shape.begin() + 1, stored.shape.end(), info.shape.begin() + 1);
        if (stored.shape != info.shape && !is_several)
            throw input_error(place, "has shape " + text_of(stored.shape) + ", expected " + text_of(info.shape) +
                                         (is_input ? ", or a multiple of it along the first dimension" : ""));
    }
    [[nodiscard]] static std::string text_of(tensor_shape const& shape) {
        std::string result = "[";
        for (auto const n : shape) result += (result.size() > 1 ? ", " : "") + std::to_string(n);
        return result + "]";
    }

    program const& program_;
    std::optional<json::safetensors_file> weights_, data_;
    /// Points into the files.
    std::map<tensor_id, json::stored_tensor const*> of_;
};

} // namespace heddle::cli
