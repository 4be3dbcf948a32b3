// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief One traced call of a framework's function: its target, arguments and results.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/program/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace heddle {

/// An argument of a traced call.
struct literal {
    struct none {};
    struct ellipsis {};
    struct slice {
        std::optional<std::int64_t> start, stop, step;
        [[nodiscard]] bool is_whole() const { return start.value_or(0) == 0 && !stop && step.value_or(1) == 1; }
    };
    struct tensor {
        tensor_id id = 0;
    };
    /// Is a tuple or a list.
    using list = std::vector<literal>;

    std::variant<none, bool, std::int64_t, double, std::string, tensor, list, slice, ellipsis> value{};

    template <class T>
    [[nodiscard]] T const* as() const {
        return std::get_if<T>(&value);
    }
    [[nodiscard]] bool is_none() const { return as<none>() != nullptr; }
};

/// A call of a function or method, whose first argument is the receiver.
struct traced_call {
    struct result {
        tensor_shape shape;
        element_type type = element_type::float32;
    };
    /// Is unique, and is meant for people.
    std::string name;
    /// The qualified name of the function (`torch.nn.functional.linear`), or the name of a method alone.
    std::string target;
    std::vector<literal> arguments{};
    std::map<std::string, literal, std::less<>> keywords{};
    /// The tensors among the arguments, in the order in which they were written and as often as they were.
    std::vector<tensor_id> operands{};
    std::vector<result> results{};
};

/// Adds the tensors of an argument, in the order they were written.
inline void collect_tensors(literal const& value, std::vector<tensor_id>& tensors) {
    if (auto const* tensor = value.as<literal::tensor>()) tensors.push_back(tensor->id);
    if (auto const* list = value.as<literal::list>())
        for (auto const& item : *list) collect_tensors(item, tensors);
}

/// Gives arguments by position or keyword, whichever way they were passed.
///
/// *Throws* `input_error` that names the argument that is missing or of the wrong type.
class call_arguments {
public:
    explicit call_arguments(traced_call const& call) : call_(&call) {}

    [[nodiscard]] traced_call const& call() const { return *call_; }

    /// Returns the argument, or null if it is absent or none.
    [[nodiscard]] literal const* find(std::size_t position, std::string_view name) const {
        literal const* found = nullptr;
        if (auto const keyword = call_->keywords.find(name); keyword != call_->keywords.end()) found = &keyword->second;
        else if (position < call_->arguments.size()) found = &call_->arguments[position];
        return found && found->is_none() ? nullptr : found;
    }
    [[nodiscard]] std::optional<tensor_id> find_tensor(std::size_t position, std::string_view name) const {
        auto const* found = find(position, name);
        auto const* tensor = found ? found->as<literal::tensor>() : nullptr;
        return tensor ? std::optional(tensor->id) : std::nullopt;
    }
    [[nodiscard]] tensor_id tensor(std::size_t position, std::string_view name) const {
        if (auto const found = find_tensor(position, name)) return *found;
        fail(name, "expected a tensor");
    }
    [[nodiscard]] std::int64_t integer(std::size_t position, std::string_view name,
                                       std::optional<std::int64_t> absent = {}) const {
        auto const* found = find(position, name);
        if (!found && absent) return *absent;
        auto const* number = found ? found->as<std::int64_t>() : nullptr;
        if (!number) fail(name, "expected an integer");
        return *number;
    }
    /// Returns a number, which may be an integer.
    [[nodiscard]] std::optional<double> number(std::size_t position, std::string_view name) const {
        auto const* found = find(position, name);
        if (!found) return {};
        if (auto const* real = found->as<double>()) return *real;
        if (auto const* whole = found->as<std::int64_t>()) return static_cast<double>(*whole);
        return {};
    }
    /// Returns a number or a list of them.
    [[nodiscard]] std::vector<double> numbers(std::size_t position, std::string_view name) const {
        auto const* found = find(position, name);
        if (!found) return {};
        std::vector<double> result;
        auto const add = [&](literal const& item) {
            if (auto const* real = item.as<double>()) result.push_back(*real);
            else if (auto const* whole = item.as<std::int64_t>()) result.push_back(static_cast<double>(*whole));
            else fail(name, "expected numbers");
        };
        if (auto const* list = found->as<literal::list>()) std::ranges::for_each(*list, add);
        else add(*found);
        return result;
    }
    [[nodiscard]] bool flag(std::size_t position, std::string_view name, bool absent) const {
        auto const* found = find(position, name);
        if (!found) return absent;
        auto const* value = found->as<bool>();
        if (!value) fail(name, "expected true or false");
        return *value;
    }
    [[nodiscard]] std::string text(std::size_t position, std::string_view name, std::string absent) const {
        auto const* found = find(position, name);
        if (!found) return absent;
        auto const* value = found->as<std::string>();
        if (!value) fail(name, "expected a string");
        return *value;
    }
    /// Returns an integer, a list of them, or the integers from `position` to the last positional argument.
    [[nodiscard]] std::vector<std::int64_t> integers(std::size_t position, std::string_view name) const {
        std::vector<std::int64_t> result;
        auto const add = [&](literal const& item) {
            auto const* number = item.as<std::int64_t>();
            if (!number) fail(name, "expected integers");
            result.push_back(*number);
        };
        auto const* first = find(position, name);
        if (!first) return result;
        if (auto const* list = first->as<literal::list>()) {
            for (auto const& item : *list) add(item);
        } else if (call_->keywords.contains(name)) {
            add(*first);
        } else {
            for (std::size_t i = position; i < call_->arguments.size() && call_->arguments[i].as<std::int64_t>(); ++i)
                add(call_->arguments[i]);
        }
        return result;
    }
    /// Returns a dimension, counted from the end if negative, as an index below `rank`.
    [[nodiscard]] std::size_t axis(std::int64_t dimension, std::size_t rank, std::string_view name = "dim") const {
        auto const size = static_cast<std::int64_t>(rank);
        if (dimension < -size || dimension >= size)
            fail(name,
                 "is " + std::to_string(dimension) + ", expected a dimension of a tensor of " + std::to_string(rank));
        return static_cast<std::size_t>(dimension < 0 ? dimension + size : dimension);
    }

    [[noreturn]] void fail(std::string_view argument, std::string const& problem) const {
        throw input_error("operator '" + call_->name + "', argument '" + std::string(argument) + "'", problem);
    }

private:
    traced_call const* call_;
};

} // namespace heddle
