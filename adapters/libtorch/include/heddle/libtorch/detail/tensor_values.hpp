// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Which tensor of a program a tensor of libtorch holds: sources found by their storage, in-place changes as values.
#pragma once

#include <heddle/libtorch/detail/shape_evaluation.hpp>
#include <heddle/program/call_recorder.hpp>

#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
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
    default: throw input_error(place, std::string("has elements of type ") + c10::toString(t.scalar_type()) + ", which a program cannot have");
    }
}

[[nodiscard]] inline shape shape_of(at::Tensor const& t) { return {t.sizes().begin(), t.sizes().end()}; }

/// Parameters and buffers of a module. One that is reached under several names, as tied parameters are, is one source under the first.
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

    /// The source that a tensor attribute is; `path` names one that the module does not register.
    source const& find(at::Tensor const& attribute, std::string const& path) { return add(attribute, {path, false, attribute}); }

private:
    /// The same places of the same storage: a saved module has lost which of its tensors were one object.
    using key = std::tuple<c10::StorageImpl const*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;

    source const& add(at::Tensor const& t, source s) {
        return sources_.try_emplace(key{t.storage().unsafeGetStorageImpl(), t.storage_offset(), t.sizes().vec(), t.strides().vec()}, std::move(s)).first->second;
    }

    std::map<key, source> sources_;
};

/// Stand-ins without data for all tensors of a run, and which tensor of the program each of them holds at this point.
///
/// A program knows values, not storage. An in-place change makes a new value, which the changed stand-in then holds; another one
/// that shares its storage holds it too where both are the same elements, and else cannot be used any more.
class tensor_values {
public:
    explicit tensor_values(call_recorder& recorder) : recorder_(recorder) {}

    /// A new stand-in for a source, which enters the program with its first use.
    at::Tensor stand_in(module_sources::source const& source) {
        auto& made = stand_ins_[&source];
        if (!made.defined()) {
            made = at::empty(source.tensor.sizes(), source.tensor.options().device(at::kMeta).requires_grad(false));
            sources_.emplace(made.unsafeGetTensorImpl(), &source);
        }
        return made;
    }

    /// The stand-in of a tensor whose contents are known while tracing: a buffer, once it meets a traced one.
    at::Tensor stand_in_for_constant(at::Tensor const& t) {
        auto& made = constants_[t.unsafeGetTensorImpl()];
        if (!made.second.defined()) {
            made = {t, without_data(t)};
            auto const name = "constant_" + std::to_string(constants_.size() - 1);
            define(made.second, recorder_.builder.buffer(name, shape_of(t), element_type_of(t, name)));
        }
        return made.second;
    }

    [[nodiscard]] bool is_traced(at::Tensor const& t) const {
        return held_.contains(t.unsafeGetTensorImpl()) || sources_.contains(t.unsafeGetTensorImpl());
    }

    /// From here on `t` holds this tensor of the program.
    void define(at::Tensor const& t, tensor_id id) { held_.insert_or_assign(t.unsafeGetTensorImpl(), held{t, id, writes_to(t).count}); }

    /// `t` was changed in place to this tensor of the program.
    void redefine(at::Tensor const& t, tensor_id id) {
        auto& writes = writes_[t.storage().unsafeGetStorageImpl()];
        ++writes.count;
        writes.last = t;
        define(t, id);
    }

    /// The tensor of the program that `t` holds. *Throws* `input_error` if part of it was changed under another name.
    tensor_id id(at::Tensor const& t, std::string const& place) {
        if (auto const source = sources_.find(t.unsafeGetTensorImpl()); source != sources_.end() && !held_.contains(source->first)) enter(t, *source->second);
        auto const& now = held_.at(t.unsafeGetTensorImpl());
        auto const writes = writes_to(t);
        return now.writes == writes.count ? now.id : through(t, writes.last, place);
    }

private:
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
        define(t, source.is_parameter ? builder.parameter(source.name, shape_of(t), type, source.tensor.requires_grad()) : builder.buffer(source.name, shape_of(t), type));
    }

    /// What `t` holds since another name for its elements was changed.
    tensor_id through(at::Tensor const& t, at::Tensor const& changed, std::string const& place) {
        bool const same_place = t.numel() == changed.numel() && t.storage_offset() == changed.storage_offset();
        auto const new_value = held_.at(changed.unsafeGetTensorImpl()).id;
        if (same_place && t.sizes() == changed.sizes() && t.strides() == changed.strides()) {
            define(t, new_value);
        } else if (same_place && t.is_contiguous() && changed.is_contiguous()) {
            traced_call const call{place + ".reshape_" + std::to_string(reshapes_++), "reshape", {{literal::tensor{new_value}}}, {}, {new_value},
                                   {{shape_of(t), element_type_of(t, place)}}};
            define(t, recorder_.add(call).front());
        } else {
            throw input_error(place, "a tensor is used that shares some of its elements with one that was changed in place since; use torch.where, torch.cat or a clone");
        }
        return held_.at(t.unsafeGetTensorImpl()).id;
    }

    call_recorder& recorder_;
    std::unordered_map<module_sources::source const*, at::Tensor> stand_ins_;
    std::unordered_map<c10::TensorImpl const*, module_sources::source const*> sources_;
    std::unordered_map<c10::TensorImpl const*, std::pair<at::Tensor, at::Tensor>> constants_;
    std::unordered_map<c10::TensorImpl const*, held> held_;
    std::unordered_map<c10::StorageImpl const*, write_record> writes_;
    std::size_t reshapes_ = 0;
};

} // namespace heddle::libtorch::detail
