// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief What a run saves, and the checkpoint from which it goes on.
#pragma once

#include "../commands.hpp"
#include "../planned_training.hpp"

#include <heddle/base/error.hpp>
#include <heddle/execute/stored_parts.hpp>
#include <heddle/json/checkpoint.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace heddle::cli {

/// A rank's view of the checkpoints that are asked for. All ranks make it before any saves.
class checkpoints {
public:
    /// *Throws* `error` if the checkpoint to go on from cannot be read, is of another model or optimiser or has made
    /// all steps, or if another than that one would be overwritten.
    checkpoints(train_arguments const& a, training const& what) : arguments_(a) {
        if (a.save.empty() && a.resume.empty()) return;
        ranks_ = what.stored();
        next_ = json::describe(what.model.program, ranks_);
        next_.model = what.model.name;
        next_.optimizer = a.optimizer;
        next_.save = 0;
        if (!a.resume.empty()) require_use(from_.emplace(a.resume), what.model.program);
        if (!a.save.empty() && std::filesystem::exists(json::index_of(a.save))) {
            std::error_code error;
            if (a.resume.empty() || !std::filesystem::equivalent(a.save, a.resume, error))
                throw input_error(a.save, "has a checkpoint already; go on from it with --resume, or save elsewhere");
            next_.save = from_->index().save;
        }
    }

    /// The checkpoint to go on from, if there is one.
    [[nodiscard]] json::checkpoint_reader* source() { return from_ ? &*from_ : nullptr; }
    /// The parts of a rank. *Precondition:* something is saved or resumed.
    [[nodiscard]] stored_parts const& of_rank(std::size_t rank) const { return ranks_[rank]; }
    [[nodiscard]] bool is_due(std::uint64_t step) const {
        if (arguments_.save.empty()) return false;
        return step == arguments_.steps || (arguments_.save_every && step % *arguments_.save_every == 0);
    }

    /// Saves one rank, of which `run` is the training; `wait_for_all` returns when all ranks have come there.
    template <class Run, class Wait>
    void save(Run const& run, std::size_t rank, Wait&& wait_for_all) {
        run.describe(next_);
        ++next_.save;
        run.save(arguments_.save, next_, rank, ranks_[rank]);
        wait_for_all();
        if (rank == 0) json::commit(arguments_.save, next_);
    }

private:
    void require_use(json::checkpoint_reader const& from, program const& p) const {
        auto const& c = from.index();
        require_fit(c, from.name(), p, ranks_);
        if (c.optimizer != arguments_.optimizer)
            throw input_error(from.name(), "was trained by " + printable(c.optimizer) + ", expected --optimizer " +
                                               arguments_.optimizer);
        if (c.step >= arguments_.steps)
            throw input_error(from.name(), "has made " + std::to_string(c.step) + " steps, and --steps asks for " +
                                               std::to_string(arguments_.steps) + " in all");
    }

    train_arguments const& arguments_;
    std::vector<stored_parts> ranks_;
    json::checkpoint next_;
    std::optional<json::checkpoint_reader> from_;
};

/// Returns all of each tensor that a checkpoint has, for a single device.
[[nodiscard]] inline stored_parts whole_parts(program const& p, json::checkpoint const& c) {
    stored_parts parts;
    for (tensor_id t = 0; t < p.tensor_count(); ++t) {
        auto const& info = p.tensor(t);
        bool const is_kept = info.role == tensor_role::parameter || info.role == tensor_role::buffer;
        if (is_kept && c.tensors.contains(info.name)) parts.emplace(t, tensor_part::whole(info.shape));
    }
    return parts;
}

} // namespace heddle::cli
