// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Tells which tensor of a program a tensor of libtorch holds: sources are found by their storage, and in-place
/// changes become values.
#pragma once

#include <heddle/base/requirements.hpp>

#include <heddle/libtorch/detail/shape_evaluation.hpp>
#include <heddle/program/call_recorder.hpp>

#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace heddle::libtorch::detail {

[[nodiscard]] inline element_type element_type_of(at::Tensor const& t, std::string const& place) {
    switch (t.scalar_type()) {
    case at::kHalf: return element_type::float16;
    case at::kBFloat16: return element_type::bfloat16;
    case at::kFloat: return element_type::float32;
    case at::kDouble: return element_type::float64;
    case at::kChar:
    case at::kByte: return element_type::int8;
    case at::kInt: return element_type::int32;
    case at::kLong: return element_type::int64;
    case at::kBool: return element_type::boolean;
    default:
        throw input_error(place, std::string("has elements of type ") + c10::toString(t.scalar_type()) +
                                     ", which a program cannot have");
    }
}

[[nodiscard]] inline tensor_shape shape_of(at::Tensor const& t) { return {t.sizes().begin(), t.sizes().end()}; }

/// The parameters and buffers of a module. If one is reached under several names, as tied parameters are, it is one
/// source under the first name.
class module_sources {
public:
    struct source {
        std::string name;
        bool is_parameter = false;
        at::Tensor tensor;
    };

    explicit module_sources(torch::jit::Module const& module) {
        for (auto const& p : module.named_parameters()) add(p.value, {p.name, true, p.value});
        for (auto const& b : module.named_buffers()) add(b.value, {b.name, false, b.value});
    }

    /// Returns the source that a tensor attribute is; `path` names one that the module does not register.
    source const& find(at::Tensor const& attribute, std::string const& path) {
        return add(attribute, {path, false, attribute});
    }

private:
    /// Names places of a storage; equal places are one source, since a saved module has lost which of its tensors were
    /// one object.
    using key = std::tuple<c10::StorageImpl const*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;

    source const& add(at::Tensor const& t, source s) {
        return sources_
            .try_emplace(
                key{t.storage().unsafeGetStorageImpl(), t.storage_offset(), t.sizes().vec(), t.strides().vec()},
                std::move(s))
            .first->second;
    }

    std::map<key, source> sources_;
};

/// Where a slice along one dimension lies in a tensor whose elements it shares.
struct slice_place {
    std::size_t axis = 0;
    std::int64_t first = 0, end = 0;
};
[[nodiscard]] inline std::optional<slice_place> slice_in(at::Tensor const& part, at::Tensor const& whole) {
    if (!whole.is_contiguous() || part.dim() != whole.dim() || part.strides() != whole.strides()) return {};
    std::optional<slice_place> found;
    for (std::int64_t d = 0; d < whole.dim(); ++d) {
        if (part.size(d) == whole.size(d)) continue;
        auto const offset = part.storage_offset() - whole.storage_offset(), first = offset / whole.stride(d);
        if (found || offset % whole.stride(d) != 0 || first < 0 || first + part.size(d) > whole.size(d)) return {};
        found = {static_cast<std::size_t>(d), first, first + part.size(d)};
    }
    return found;
}

/// Holds stand-ins without data for all tensors of a run, and which tensor of the program each of them is at this
/// point.
///
/// A program knows values, not storage. An in-place change makes a new value, which the changed stand-in then holds.
/// Another stand-in that shares its storage holds it too if both have the same elements, or holds it as a slice if it
/// is one; otherwise it cannot be used any more.
class tensor_values {
public:
    explicit tensor_values(call_recorder& recorder) : recorder_(recorder) {}

    /// Returns a new stand-in for a source, which enters the program with its first use.
    at::Tensor stand_in(module_sources::source const& source) {
        auto& made = stand_ins_[&source];
        if (!made.defined()) {
            made = at::empty(source.tensor.sizes(), source.tensor.options().device(at::kMeta).requires_grad(false));
            sources_.emplace(made.unsafeGetTensorImpl(), &source);
        }
        return made;
    }

    /// Returns the stand-in of a tensor whose contents are known while tracing: of a buffer, once it meets a traced
    /// one.
    at::Tensor stand_in_for_constant(at::Tensor const& t) {
        auto& made = constants_[t.unsafeGetTensorImpl()];
        if (!made.second.defined()) {
            made = {t, without_data(t)};
            auto const name = "constant_" + std::to_string(constants_.size() - 1);
            define(made.second, recorder_.builder.buffer(name, shape_of(t), element_type_of(t, name)));
        }
        return made.second;
    }

    /// Returns a tensor's stand-in if its contents were known while tracing and a traced one was written into it.
    /// *Throws* `input_error` for another tensor that shares its storage.
    [[nodiscard]] at::Tensor current(at::Tensor const& t, std::string const& place) const {
        auto const written = written_constants_.find(t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr);
        if (written == written_constants_.end()) return t;
        if (written->second != t.unsafeGetTensorImpl()) throw input_error(place, shared_storage);
        return constants_.at(t.unsafeGetTensorImpl()).second;
    }

    [[nodiscard]] bool is_traced(at::Tensor const& t) const {
        return held_.contains(t.unsafeGetTensorImpl()) || sources_.contains(t.unsafeGetTensorImpl());
    }

    /// Lets `t` hold this tensor of the program from here on.
    void define(at::Tensor const& t, tensor_id id) {
        held_.insert_or_assign(t.unsafeGetTensorImpl(), held{t, id, writes_to(t).count});
    }

    /// Notes that `t` was changed in place to this tensor of the program.
    void redefine(at::Tensor const& t, tensor_id id) {
        auto& writes = writes_[t.storage().unsafeGetStorageImpl()];
        ++writes.count;
        writes.last = t;
        define(t, id);
        for (auto const& [constant, made] : constants_)
            if (made.second.is_same(t))
                written_constants_.emplace(made.first.storage().unsafeGetStorageImpl(), constant);
    }

    /// Returns the tensor of the program that `t` holds. *Throws* `input_error` if part of it was changed under another
    /// name.
    tensor_id id(at::Tensor const& t, std::string const& place) {
        if (auto const source = sources_.find(t.unsafeGetTensorImpl());
            source != sources_.end() && !held_.contains(source->first))
            enter(t, *source->second);
        auto const& now = held_.at(t.unsafeGetTensorImpl());
        auto const writes = writes_to(t);
        return now.writes == writes.count ? now.id : through(t, writes, place);
    }

private:
    static constexpr char const* shared_storage = "a tensor is used that shares some of its elements with one that was "
                                                  "changed in place since; use torch.where, torch.cat or a clone";

    struct held {
        at::Tensor stand_in; // alive, so that no other tensor gets its address
        tensor_id id = 0;
        std::size_t writes = 0;
    };
    struct write_record {
        std::size_t count = 0;
        at::Tensor last{};
    };

    [[nodiscard]] write_record writes_to(at::Tensor const& t) const {
        auto const found = writes_.find(t.storage().unsafeGetStorageImpl());
        return found == writes_.end() ? write_record{} : found->second;
    }

    void enter(at::Tensor const& t, module_sources::source const& source) {
        auto const type = element_type_of(t, source.name);
        auto& builder = recorder_.builder;
        define(t, source.is_parameter ? builder.parameter(source.name, shape_of(t), type, source.tensor.requires_grad())
                                      : builder.buffer(source.name, shape_of(t), type));
    }

    /// Returns what `t` holds after another name for its elements was changed.
    tensor_id through(at::Tensor const& t, write_record const& writes, std::string const& place) {
        auto const& changed = writes.last;
        auto const old = held_.at(t.unsafeGetTensorImpl());
        bool const same_place = t.numel() == changed.numel() && t.storage_offset() == changed.storage_offset();
        auto const new_value = held_.at(changed.unsafeGetTensorImpl()).id;
        auto const slice = slice_in(changed, t);
        if (same_place && t.sizes() == changed.sizes() && t.strides() == changed.strides()) {
            define(t, new_value);
        } else if (same_place && t.is_contiguous() && changed.is_contiguous()) {
            define(t, add(place, "reshape", {{literal::tensor{new_value}}}, {new_value}, shape_of(t), t));
        } else if (slice && old.writes + 1 == writes.count) {
            define(t, with_slice(t, old.id, *slice, new_value, place));
        } else {
            throw input_error(place, shared_storage);
        }
        return held_.at(t.unsafeGetTensorImpl()).id;
    }

    /// Returns a tensor with a slice replaced: what is before, the slice, and what is after.
    tensor_id with_slice(at::Tensor const& t, tensor_id old, slice_place const& slice, tensor_id value,
                         std::string const& place) {
        literal::list pieces;
        std::vector<tensor_id> operands;
        auto const join = [&](tensor_id piece) {
            pieces.push_back({literal::tensor{piece}});
            operands.push_back(piece);
        };
        auto const take = [&](std::int64_t first, std::int64_t end) {
            if (first == end) return;
            literal::list index(slice.axis, literal{literal::slice{}});
            index.push_back({literal::slice{first, end, {}}});
            tensor_shape dims = shape_of(t);
            dims[slice.axis] = end - first;
            join(add(place, "operator.getitem", {{literal::tensor{old}}, {std::move(index)}}, {old}, std::move(dims),
                     t));
        };
        take(0, slice.first);
        join(value);
        take(slice.end, t.size(static_cast<std::int64_t>(slice.axis)));
        return add(place, "torch.cat", {{std::move(pieces)}, {static_cast<std::int64_t>(slice.axis)}},
                   std::move(operands), shape_of(t), t);
    }

    /// Adds an operator that the module does not apply; its result has the type of `like`.
    tensor_id add(std::string const& place, std::string target, std::vector<literal> arguments,
                  std::vector<tensor_id> operands, tensor_shape result, at::Tensor const& like) {
        auto const name = place + "." + target.substr(target.rfind('.') + 1) + "_" + std::to_string(added_++);
        return recorder_
            .add({name,
                  std::move(target),
                  std::move(arguments),
                  {},
                  std::move(operands),
                  {{std::move(result), element_type_of(like, place)}}})
            .front();
    }

    call_recorder& recorder_;
    std::unordered_map<module_sources::source const*, at::Tensor> stand_ins_;
    std::unordered_map<c10::TensorImpl const*, module_sources::source const*> sources_;
    std::unordered_map<c10::TensorImpl const*, std::pair<at::Tensor, at::Tensor>> constants_;
    std::unordered_map<c10::StorageImpl const*, c10::TensorImpl const*> written_constants_;
    std::unordered_map<c10::TensorImpl const*, held> held_;
    std::unordered_map<c10::StorageImpl const*, write_record> writes_;
    std::size_t added_ = 0;
};

} // namespace heddle::libtorch::detail
