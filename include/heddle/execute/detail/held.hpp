// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a rank has of a program's tensors while it runs: tensors that several places share, and that a
/// collective may still be bringing.
#pragma once

#include <heddle/execute/communicator.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/program/indexed_program.hpp>
#include <heddle/theory/form.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace heddle::detail {

/// A tensor that several places may have at once; it is copied where one of them changes it.
template <rank_tensor Tensor>
class held {
public:
    held() = default;
    held(Tensor made) : tensor_(std::make_shared<Tensor>(std::move(made))) {}
    /// A tensor that its owner keeps as it is while this is used.
    [[nodiscard]] static held of(Tensor const& kept) {
        held result;
        result.tensor_ = std::shared_ptr<Tensor const>(std::shared_ptr<void>(), &kept);
        return result;
    }

    [[nodiscard]] explicit operator bool() const { return tensor_ != nullptr; }
    [[nodiscard]] Tensor const& operator*() const { return *tensor_; }
    [[nodiscard]] Tensor const* operator->() const { return tensor_.get(); }
    [[nodiscard]] Tensor const* get() const { return tensor_.get(); }
    /// Returns the tensor to be changed, which nobody else has then.
    [[nodiscard]] Tensor& own() {
        if (tensor_.use_count() != 1) tensor_ = std::make_shared<Tensor>(*tensor_);
        return const_cast<Tensor&>(*tensor_); // made above or in the constructor, where it is not const
    }
    [[nodiscard]] Tensor release() && { return std::move(own()); }

private:
    std::shared_ptr<Tensor const> tensor_;
};

/// Something that is there, or that a started operation brings: then `finish` makes it of what has come, and keeps the
/// spans of the operation alive.
template <class Value, communication_request Request>
class arriving {
public:
    arriving() = default;
    arriving(Value there) : value_(std::move(there)) {}
    arriving(Request started, std::function<Value()> finish)
        : finish_(std::move(finish)), request_(std::move(started)) {}
    arriving(arriving&&) noexcept = default;
    arriving& operator=(arriving&& other) noexcept {
        std::swap(value_, other.value_);
        std::swap(finish_, other.finish_);
        std::swap(request_, other.request_);
        return *this;
    }

    [[nodiscard]] bool is_there() const { return !finish_; }
    /// Waits for it.
    [[nodiscard]] Value& get() {
        if (finish_) {
            request_.wait();
            value_ = finish_();
            finish_ = nullptr;
        }
        return value_;
    }

private:
    Value value_{};
    std::function<Value()> finish_;
    Request request_{}; // goes first
};

/// A tensor that is there or arrives; or the sum of several.
template <rank_tensor Tensor, communication_request Request>
class slot {
public:
    using part = arriving<held<Tensor>, Request>;

    slot() = default;
    slot(part first) : first_(std::move(first)) {}

    [[nodiscard]] held<Tensor>& get() {
        auto& sum = first_.get();
        for (auto& p : more_) sum.own() += *p.get();
        more_.clear();
        return sum;
    }
    /// Adds what is there at once, and what is not when it is asked for.
    void add(part other) {
        if (first_.is_there() && more_.empty() && other.is_there()) first_.get().own() += *other.get();
        else more_.push_back(std::move(other));
    }

private:
    part first_;
    std::vector<part> more_;
};

/// What there is of each tensor, by its form. A place may move when another is made for the same tensor.
template <class Slot, class Form = tensor_form>
class form_slots {
public:
    explicit form_slots(std::size_t tensors) : of_(tensors) {}

    /// Returns null if there is nothing.
    [[nodiscard]] Slot* find(tensor_id t, Form const& f) {
        for (auto& [form, slot] : of_[t])
            if (form == f) return &slot;
        return nullptr;
    }
    template <class What>
    void set(tensor_id t, Form const& f, What&& what) {
        if (auto* const found = find(t, f)) *found = std::forward<What>(what);
        else of_[t].emplace_back(f, std::forward<What>(what));
    }
    [[nodiscard]] std::optional<Slot> take(tensor_id t, Form const& f) {
        auto const found = place(t, f);
        if (found == of_[t].end()) return {};
        std::optional<Slot> result(std::move(found->second));
        of_[t].erase(found);
        return result;
    }
    /// Waits for what is dropped, though nobody has used it.
    void drop(tensor_id t, Form const& f) {
        auto const found = place(t, f);
        if (found == of_[t].end()) return;
        (void)found->second.get();
        of_[t].erase(found);
    }
    void drop_all() {
        for (auto& forms : of_) {
            for (auto& s : forms) (void)s.second.get();
            forms.clear();
        }
    }

private:
    [[nodiscard]] auto place(tensor_id t, Form const& f) {
        return std::ranges::find(of_[t], f, &std::pair<Form, Slot>::first);
    }

    std::vector<std::vector<std::pair<Form, Slot>>> of_;
};

} // namespace heddle::detail
