// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The costs at given shares of what moves through the cuts of a program.
#pragma once

#include <heddle/base/algorithm.hpp>
#include <heddle/base/definitions.hpp>
#include <heddle/cost/buckets.hpp>
#include <heddle/cost/cost_model.hpp>
#include <heddle/cost/relaxation_weights.hpp>
#include <heddle/search/numbering.hpp>
#include <heddle/search/state_graph.hpp>
#include <heddle/theory/cut_space.hpp>
#include <heddle/theory/loose_links.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace heddle {

using cut_graph = search::state_graph<cut_space::action>;

/// The time and memory of one program, per class of devices.
struct path_cost {
    double seconds = 0;
    /// The bytes per class: what is stored and saved, and the largest communication buffer.
    std::vector<double> memory;
    /// A lower bound of the seconds: the sum over its steps, where each gradient costs what it adds to its bucket at
    /// least.
    double added = 0;
};

/// Seconds of a move's transfers: of either direction; of parameters that are kept, which may run earlier; of
/// parameters that are gathered again; of gradients; and of those that nothing runs beside, which kernels wait for or
/// which follow the update.
struct move_transfers {
    double forward = 0, backward = 0, early = 0, again = 0, gradients = 0, alone = 0;
    [[nodiscard]] double total() const { return forward + backward + early + again + gradients + alone; }
};

/// A gradient's kind of bucket and its bytes.
struct bucket_share {
    std::size_t kind = 0;
    double bytes = 0;
    friend bool operator==(bucket_share const&, bucket_share const&) = default;
};

/// What a bucket of some kind costs beyond its gradients' bytes: its latency, which prices have in part, `per_byte` of
/// their gradients and nothing `first`, or, if it is small, all to be paid with the first. A small one has any
/// capacity.
struct bucket_charge {
    double latency = 0, first = 0, per_byte = 0, capacity = std::numeric_limits<double>::max();
};

/// What a move costs: per class, the seconds of work in the forward pass, the backward pass and the update, and the
/// bytes that stay.
struct move_price {
    move_transfers transfers;
    std::span<double const> work, backward_work, update, memory;
    /// The most bytes that come and go within the move.
    double buffer = 0;
    /// If set, the collectives of its gradients follow all of its backward work.
    bool gradients_wait = true;
    bucket_kinds small_buckets = 0;
    /// Sides of links, if the program is a loosened one.
    std::span<std::uint32_t const> links{};
    [[nodiscard]] double backward_weight(side_weights const& side) const {
        return gradients_wait ? side.backward : side.beside;
    }
};

/// What a device holds of a tensor of a space's program in a form, and of which it is a share, if of any.
using holdings_at_cuts = std::function<std::pair<holding, share_ref>(tensor_id, tensor_form)>;

/// Holds the prices of all moves at given shares. They are made once for all operators of one kind that have the same
/// shares. It keeps references to the space, the graph and the model.
///
/// Which gradients share a bucket depends on the whole program, so a gradient is priced as what it adds to its bucket
/// at least. If no program has more gradients of some kind than one bucket holds, that bucket is *small*: then each
/// gradient is priced without latency, and the first move that puts one into the bucket pays the latency.
class priced_graph {
public:
    /// `steps` are those of the space's instructions. `shares.is_by_extent()`, if it exists, tells whether factors of
    /// equal extent have equal shares.
    ///
    /// `held` says what a device holds of a tensor in a form, and of which it is a share, if not what it holds on one
    /// axis. `links` are those of the space, if it has any. `constants` are the ways to compute what every program
    /// computes somewhere in its forward pass. Each counts as the least that any device needs for it in any way, which
    /// is what it adds at least, wherever it stands, unless something else runs beside it.
    template <class Shares>
    priced_graph(cut_space const& space, cut_graph const& graph, std::span<step_work const> steps,
                 cost_model const& model, Shares const& shares, training_options const& training = {},
                 holdings_at_cuts const& held = {}, loose_links const* links = nullptr,
                 std::span<std::vector<step_work> const> constants = {})
        : space_(space), graph_(graph), model_(model), training_(training), links_(links),
          number_in_kind_(steps.size()) {
        auto const moves = moves_by_kind();
        search::numbering<std::vector<std::uint32_t>, search::list_hash<std::uint32_t>> numbers;
        share_numbers const same(space, shares);
        for (std::size_t op = 0; op <= space.program().operators.size(); ++op) {
            auto const [number, is_new] = numbers.insert(same(op));
            if (is_new) {
                variants_.push_back(
                    {static_cast<std::uint32_t>(prices_.size()), static_cast<std::uint32_t>(instructions_.size())});
                price_operator(op, moves[space.kind(op)], steps, shares, held);
            }
            variant_of_operator_.push_back(number);
        }
        find_small_buckets(moves);
        number_levels();
        for (auto const& ways : constants) constants_ += least_of(ways, shares);
    }

    [[nodiscard]] cut_graph const& graph() const { return graph_; }
    [[nodiscard]] cut_space const& space() const { return space_; }
    [[nodiscard]] cost_model const& model() const { return model_; }
    [[nodiscard]] training_options const& training() const { return training_; }
    /// Tells whether the graph has every order of operators that `operator_cuts` looks for.
    [[nodiscard]] bool has_all_orders() const { return space_.cuts().is_complete(); }
    [[nodiscard]] std::span<std::uint32_t const> instructions_of(cut_space::action a) const;
    /// Returns the costs of an instruction before an operator, or of the operator itself.
    [[nodiscard]] step_cost const& instruction(std::size_t op, std::uint32_t i) const {
        return instructions_[variants_[variant_of_operator_[op]].first_instruction + number_in_kind_[i]];
    }
    [[nodiscard]] std::span<double const> memory(std::size_t level, cut_space::action a) const {
        return {memory_.data() + place(level, a) * model_.class_count(), model_.class_count()};
    }
    /// Returns the seconds that constants take at least.
    [[nodiscard]] double constants() const { return constants_; }
    [[nodiscard]] std::size_t small_bucket_count() const { return small_latencies_.size(); }
    /// Returns the small buckets that a move's gradients are in; and the one that an instruction's gradient is in.
    [[nodiscard]] bucket_kinds small_buckets(std::size_t level, cut_space::action a) const {
        return prices_[place(level, a)].small_buckets;
    }
    [[nodiscard]] bucket_kinds small_bucket(std::size_t op, std::uint32_t i) const {
        auto const* const gradient = gradient_of(op, i);
        return gradient ? gradient->small : 0;
    }
    /// Returns the latencies of small buckets in seconds.
    [[nodiscard]] double latency(bucket_kinds kinds) const;
    /// Returns, for each instruction of a program, the seconds of the bucket of gradients that is sent after it;
    /// nothing for an instruction after which none is sent.
    [[nodiscard]] std::vector<std::optional<double>> sent_after(move_list const& path) const;
    [[nodiscard]] bool has_buckets() const { return !gradients_.empty(); }
    /// Returns the gradients that a move puts into buckets, in the order of its instructions.
    [[nodiscard]] std::vector<bucket_share> gradients(std::size_t level, cut_space::action a) const;
    /// Returns what buckets cost, by kind.
    [[nodiscard]] std::vector<bucket_charge> const& bucket_charges() const { return bucket_charges_; }
    /// Returns the most bytes that come and go within a move.
    [[nodiscard]] double buffer(std::size_t level, cut_space::action a) const {
        return prices_[place(level, a)].buffer;
    }

    [[nodiscard]] bool fits(path_cost const& cost) const;

    /// Returns what a move costs on a level.
    [[nodiscard]] move_price price(std::size_t level, cut_space::action a) const { return price_at(place(level, a)); }

    /// Returns shortest paths under a number that is made of the price of each move.
    template <std::invocable<move_price const&> Number>
    [[nodiscard]] search::shortest_paths shortest_under(Number const& number) const {
        auto const everywhere = [&](move_price const& move, std::size_t) { return number(move); };
        return shortest_under(everywhere, 1, [](std::size_t) { return std::size_t{0}; });
    }
    /// As above, where the number also depends on the part of the program that a level is in: `part_of(level)`, which
    /// is less than `parts`.
    template <std::invocable<move_price const&, std::size_t> Number, std::invocable<std::size_t> PartOf>
    [[nodiscard]] search::shortest_paths shortest_under(Number const& number, std::size_t parts,
                                                        PartOf const& part_of) const {
        return shortest_under(graph_, number, parts, part_of);
    }
    /// As above, in a part of the graph: its levels and actions are those of the graph.
    template <std::invocable<move_price const&, std::size_t> Number, std::invocable<std::size_t> PartOf>
    [[nodiscard]] search::shortest_paths shortest_under(cut_graph const& graph, Number const& number, std::size_t parts,
                                                        PartOf const& part_of) const {
        return search::paths_to_goal(graph, move_costs(*this, number, parts, part_of));
    }

    /// Returns the least memory of class `k` from every node to the end.
    [[nodiscard]] search::shortest_paths least_memory(std::size_t k) const;

private:
    struct stored_price {
        move_transfers transfers;
        double buffer = 0;
        bool gradients_wait = true;
        bucket_kinds small_buckets = 0;
        std::span<std::uint32_t const> links{};
    };
    /// A gradient that is put into a bucket.
    struct bucketed_gradient {
        transfer what;
        element_type type;
        bucket_load load;
        std::size_t kind;
        bucket_kinds small = 0;
    };
    struct variant {
        std::uint32_t first_price, first_instruction;
    };
    /// Numbers for moves that depend on the part of the program that a level is in. Each is computed when it is asked
    /// for.
    template <class Number, class PartOf>
    class move_costs {
    public:
        move_costs(priced_graph const& priced, Number const& number, std::size_t parts, PartOf part_of)
            : priced_(priced), number_(number), part_of_(part_of),
              of_place_(parts, std::vector<double>(priced.prices_.size(), std::numeric_limits<double>::quiet_NaN())) {}
        double operator()(std::size_t level, cut_space::action a) const {
            auto const part = part_of_(level), place = priced_.place(level, a);
            auto& known = of_place_[part][place];
            if (std::isnan(known)) known = number_(priced_.price_at(place), part);
            return known;
        }
        [[nodiscard]] std::uint64_t alike(std::size_t level) const {
            return part_of_(level) * priced_.number_of_level_.size() + priced_.number_of_level_[level];
        }

    private:
        priced_graph const& priced_;
        Number const& number_;
        PartOf part_of_;
        mutable std::vector<std::vector<double>> of_place_; // not a number where it was not asked for
    };

    /// What tells whether two operators have equal prices: their kind and, if shares differ between equal extents,
    /// their shares.
    template <class Shares>
    class share_numbers {
    public:
        share_numbers(cut_space const& space, Shares const& shares) : space_(space), shares_(shares) {
            if constexpr (requires { shares.is_by_extent(); }) is_by_extent_ = shares.is_by_extent();
            for (std::size_t o = 0; o <= space.program().operators.size(); ++o)
                is_repeated_.push_back(false), is_repeated_[space.kind(o)] = space.kind(o) != o;
        }
        std::vector<std::uint32_t> operator()(std::size_t number) const {
            std::vector<std::uint32_t> key{space_.kind(number)};
            if (is_by_extent_ || !is_repeated_[space_.kind(number)]) return key;
            auto const& op = space_.program().operators[number];
            for (std::size_t k = 0; k < op.operands.size() + op.results.size(); ++k) {
                tensor_id const t = tensor_at(op, k);
                for (std::size_t f = 0; f < space_.program().tensors[t].factors.size(); ++f)
                    key.push_back(numbers_.insert(shares_(share_ref{t, static_cast<factor_number>(f)})).first);
            }
            return key;
        }

    private:
        cut_space const& space_;
        Shares const& shares_;
        bool is_by_extent_ = false;
        std::vector<bool> is_repeated_;
        mutable search::numbering<share_vector, search::list_hash<double>> numbers_;
    };

    /// Gives levels one number if moves cost the same on them, that is, if their operators have equal prices.
    void number_levels();

    /// Returns the moves of each kind, and numbers moves and instructions within their kind.
    std::vector<std::vector<cut_space::action>> moves_by_kind();

    /// Returns an instruction's gradient, or null if no gradient of it is put into a bucket.
    [[nodiscard]] bucketed_gradient const* gradient_of(std::size_t op, std::uint32_t i) const;
    /// Takes the latencies of small buckets out of the prices.
    void find_small_buckets(std::vector<std::vector<cut_space::action>> const& moves);

    template <class Shares>
    void price_instruction(step_work const& s, Shares const& shares) {
        instructions_.push_back(model_.price(s, shares));
        gradient_of_instruction_.push_back(no_gradient);
        if (!s.reduces_gradients() || s.deferred_transfers.empty() ||
            !fits_bucket(s.deferred_transfers.front(), model_.bucket()))
            return;
        auto const what = model_.decided(s.deferred_transfers.front(), shares, true).what;
        gradient_of_instruction_.back() = static_cast<std::uint32_t>(gradients_.size());
        auto const kind = kind_of(what, s.type);
        auto const number = static_cast<std::size_t>(algorithm::find(bucket_kinds_, kind) - bucket_kinds_.begin());
        if (number == bucket_kinds_.size()) bucket_kinds_.push_back(kind);
        gradients_.push_back({what, s.type, model_.load(what, shares), number});
    }

    template <class Shares>
    [[nodiscard]] double least_of(std::vector<step_work> const& ways, Shares const& shares) const {
        double least = std::numeric_limits<double>::infinity();
        for (auto const& way : ways) { // it may run again
            auto cost = model_.price(way, shares);
            for (std::size_t k = 0; k < cost.forward.size(); ++k) cost.forward[k] += cost.backward[k];
            least = std::min(least, algorithm::min(cost.forward));
        }
        return least;
    }

    template <class Shares>
    void price_operator(std::size_t op, std::vector<cut_space::action> const& moves, std::span<step_work const> steps,
                        Shares const& shares, holdings_at_cuts const& held) {
        auto const classes = model_.class_count();
        auto const first = instructions_.size();
        auto& most_bytes = most_bytes_.emplace_back();
        std::vector<double> in_move;
        auto const here = [&](share_ref ref) -> decltype(auto) {
            return shares(share_ref{space_.at(op, ref.tensor), ref.factor, ref.inside});
        };
        // Parameters that are unsharded to run again, and resharded after it, stay until their region is through.
        auto const& program = space_.program();
        auto const region = op < program.operators.size() && !program.operators[op].results.empty()
                                ? program.tensors[program.operators[op].results.front()].region
                                : no_region;
        double const copies = training_.runs_again(region) ? program.counted_of(region) : 0;
        for (auto a : moves) {
            auto const& move = space_.moves()[a];
            auto& p = prices_.emplace_back();
            momentary_memory momentary;
            std::size_t const at = work_.size();
            for (auto* list : {&work_, &backward_work_, &update_, &memory_}) list->resize(at + classes);
            algorithm::fill(in_move, 0.0);
            for (auto i : move.instructions) {
                if (first + number_in_kind_[i] == instructions_.size()) price_instruction(steps[i], here);
                auto const& cost = instructions_[first + number_in_kind_[i]];
                if (auto const number = gradient_of_instruction_[first + number_in_kind_[i]]; number != no_gradient) {
                    auto const& g = gradients_[number];
                    if (in_move.size() <= g.kind) in_move.resize(g.kind + 1), most_bytes.resize(g.kind + 1);
                    most_bytes[g.kind] = std::max(most_bytes[g.kind], in_move[g.kind] += g.what.size.value);
                }
                auto const* const unshard = space_.instructions()[i].template as<instruction::unshard>();
                bool const is_copied = unshard && unshard->is_resharded;
                double const times = cost.once ? 1 : training_.micro_batches;
                bool const stays = cost.once && cost.transient == 0; // or is gathered again
                auto& t = p.transfers;
                (cost.waits ? t.alone : stays ? t.early : t.forward) += times * cost.forward_transfer;
                (cost.waits ? t.alone : stays ? t.again : t.backward) += times * cost.backward_transfer;
                t.gradients += cost.deferred;
                t.alone += cost.refresh;
                momentary.add(space_.instructions()[i].type(), cost);
                for (std::size_t k = 0; k < classes; ++k) {
                    work_[at + k] += times * cost.forward[k];
                    update_[at + k] += cost.update[k];
                    backward_work_[at + k] += times * cost.backward[k];
                    memory_[at + k] += cost.memory[k] + (is_copied ? copies * cost.transient : 0);
                }
            }
            for (auto const& [t, f] : move.saved) {
                auto const [bytes_held, share] = held
                                                     ? held(t, f)
                                                     : std::pair(saved_bytes(space_.program(), t, f, training_.held()),
                                                                 f.is_shard() ? share_ref{t, f.factor()} : share_ref{});
                for (std::size_t k = 0; k < classes; ++k) {
                    double const part = share.is_split() ? here(share)[k] : 1;
                    memory_[at + k] += cost_model::at(model_.on_member(bytes_held, k, part), part);
                }
            }
            p.buffer = momentary.most();
            p.gradients_wait = gradients_follow_work(move.instructions, steps);
            if (links_) p.links = links_->of(a);
        }
    }

    [[nodiscard]] move_price price_at(std::size_t place) const;
    [[nodiscard]] std::size_t place(std::size_t level, cut_space::action a) const {
        return variants_[variant_of_operator_[space_.operator_of(level, a)]].first_price + move_in_kind_[a];
    }

    cut_space const& space_;
    cut_graph const& graph_;
    cost_model const& model_;
    training_options training_;
    loose_links const* links_;
    /// The number of each instruction and of each move among those of its kind, in the order of moves.
    std::vector<std::uint32_t> number_in_kind_, move_in_kind_;
    std::vector<variant> variants_;
    std::vector<std::uint32_t> variant_of_operator_, number_of_level_;
    std::vector<step_cost> instructions_;
    double constants_ = 0;
    static constexpr std::uint32_t no_gradient = ~std::uint32_t{0};
    /// The number of each instruction's gradient, as instructions are priced.
    std::vector<std::uint32_t> gradient_of_instruction_;
    std::vector<bucketed_gradient> gradients_;
    std::vector<bucket_kind> bucket_kinds_;
    /// The most bytes of gradients of a move, by variant and kind.
    std::vector<std::vector<double>> most_bytes_;
    std::vector<double> small_latencies_;
    std::vector<bucket_charge> bucket_charges_;
    std::vector<stored_price> prices_;
    std::vector<double> work_, backward_work_, update_, memory_;
};

} // namespace heddle

#if HEDDLE_DEFINITIONS

namespace heddle {

HEDDLE_INLINE std::span<std::uint32_t const> priced_graph::instructions_of(cut_space::action a) const {
    auto const& list = space_.moves()[a].instructions;
    return {list.data(), list.size()};
}

HEDDLE_INLINE double priced_graph::latency(bucket_kinds kinds) const {
    double sum = 0;
    for (std::size_t k = 0; k < small_latencies_.size(); ++k) sum += kinds >> k & 1 ? small_latencies_[k] : 0;
    return sum;
}

HEDDLE_INLINE bool priced_graph::fits(path_cost const& cost) const {
    for (std::size_t k = 0; k < cost.memory.size(); ++k)
        if (cost.memory[k] > model_.memory_limit(k)) return false;
    return true;
}

HEDDLE_INLINE void priced_graph::number_levels() {
    search::numbering<std::vector<std::uint32_t>, search::list_hash<std::uint32_t>> numbers;
    std::size_t const last = space_.program().operators.size();
    for (std::size_t level = 0; level <= last; ++level) {
        std::vector<std::uint32_t> key;
        for (auto const& cut : space_.cuts().of_level(level))
            for (auto const& over : cut.advances) key.push_back(variant_of_operator_[over.op]);
        if (level == last) key.push_back(variant_of_operator_[level]);
        number_of_level_.push_back(numbers.insert(key).first);
    }
}

HEDDLE_INLINE std::vector<std::vector<cut_space::action>> priced_graph::moves_by_kind() {
    std::vector<std::vector<cut_space::action>> result(space_.level_count());
    std::vector<std::uint32_t> instruction_count(space_.level_count());
    constexpr std::uint32_t none = ~std::uint32_t{0};
    algorithm::fill(number_in_kind_, none);
    for (cut_space::action a = 0; a < space_.moves().size(); ++a) {
        auto const& move = space_.moves()[a];
        move_in_kind_.push_back(static_cast<std::uint32_t>(result[move.kind].size()));
        result[move.kind].push_back(a);
        for (auto i : move.instructions)
            if (number_in_kind_[i] == none) number_in_kind_[i] = instruction_count[move.kind]++;
    }
    return result;
}

HEDDLE_INLINE priced_graph::bucketed_gradient const* priced_graph::gradient_of(std::size_t op, std::uint32_t i) const {
    auto const number =
        gradient_of_instruction_[variants_[variant_of_operator_[op]].first_instruction + number_in_kind_[i]];
    return number == no_gradient ? nullptr : &gradients_[number];
}

HEDDLE_INLINE std::vector<bucket_share> priced_graph::gradients(std::size_t level, cut_space::action a) const {
    auto const op = space_.operator_of(level, a);
    std::vector<bucket_share> result;
    for (auto i : instructions_of(a))
        if (auto const* const g = gradient_of(op, i)) result.push_back({g->kind, g->what.size.value});
    return result;
}

HEDDLE_INLINE std::vector<std::optional<double>> priced_graph::sent_after(move_list const& path) const {
    struct place_of {
        std::size_t op;
        std::uint32_t instruction;
    };
    std::vector<place_of> all;
    for (std::size_t level = 0; level < path.size(); ++level)
        for (auto i : instructions_of(path[level])) all.push_back({space_.operator_of(level, path[level]), i});
    std::vector<std::optional<double>> sent(all.size());
    bucket_filler filler(model_.bucket());
    for (std::size_t n = all.size(); n-- > 0;) {
        auto const [op, i] = all[n];
        auto const& what = space_.instructions()[i];
        auto const* const gradient = gradient_of(op, i);
        if (!gradient && (what.is<instruction::compute>() || what.is<instruction::reshard>())) continue;
        // On an axis of a mesh the other one's conversions are computed.
        auto const t =
            what.change() ? space_.at(op, what.change()->tensor) : space_.program().operators[op].operands[0];
        if (gradient || !what.is<instruction::read>() || this->instruction(op, i).deferred > 0) filler.pass(t);
        if (!gradient) continue;
        sent[n] = 0;
        filler.add(n, t, gradient->what, gradient->type);
    }
    for (auto const& bucket : filler.buckets()) {
        bucket_load load;
        for (auto n : bucket.steps) load += gradient_of(all[n].op, all[n].instruction)->load;
        auto const& last = all[bucket.steps.back()];
        sent[bucket.steps.back()] = model_.time_of_bucket(gradient_of(last.op, last.instruction)->what, load);
    }
    return sent;
}

HEDDLE_INLINE void priced_graph::find_small_buckets(std::vector<std::vector<cut_space::action>> const& moves) {
    constexpr std::size_t most_kinds = 3; // bounds of programs are of all sets of them
    std::vector<double> most(bucket_kinds_.size());
    for (auto v : variant_of_operator_)
        for (std::size_t k = 0; k < most_bytes_[v].size(); ++k) most[k] += most_bytes_[v][k];
    std::vector<bucket_kinds> bit(most.size());
    for (std::size_t k = 0; k < most.size(); ++k) {
        double const latency = model_.latency_of_bucket(algorithm::find(gradients_, k, &bucketed_gradient::kind)->what);
        bool const is_small = most[k] <= model_.bucket().value && small_latencies_.size() < most_kinds;
        bucket_charges_.push_back(
            is_small ? bucket_charge{latency, latency}
                     : bucket_charge{latency, 0, latency / model_.bucket().value, model_.bucket().value});
        if (!is_small) continue;
        bit[k] = bucket_kinds{1} << small_latencies_.size();
        small_latencies_.push_back(latency);
    }
    if (small_latencies_.empty()) return;
    auto const latency_of = [&](bucketed_gradient const& g) {
        return model_.latency_of_bucket(g.what) * model_.part_of_bucket(g.what);
    };
    for (auto& g : gradients_) g.small = bit[g.kind];
    std::vector<bool> is_done(variants_.size());
    for (std::size_t op = 0; op < variant_of_operator_.size(); ++op) {
        auto const v = variant_of_operator_[op];
        if (is_done[v]) continue;
        is_done[v] = true;
        for (auto a : moves[space_.kind(op)])
            for (auto i : instructions_of(a)) {
                auto const* const g = gradient_of(op, i);
                if (!g || !g->small) continue;
                auto& mine = prices_[variants_[v].first_price + move_in_kind_[a]];
                mine.small_buckets |= g->small;
                mine.transfers.gradients = std::max(0.0, mine.transfers.gradients - latency_of(*g));
            }
    }
    for (std::size_t n = 0; n < instructions_.size(); ++n)
        if (auto const g = gradient_of_instruction_[n]; g != no_gradient && gradients_[g].small)
            instructions_[n].deferred = std::max(0.0, instructions_[n].deferred - latency_of(gradients_[g]));
}

HEDDLE_INLINE move_price priced_graph::price_at(std::size_t place) const {
    auto const classes = model_.class_count();
    auto const of = [&](std::vector<double> const& list) { return std::span(list).subspan(place * classes, classes); };
    return {prices_[place].transfers,
            of(work_),
            of(backward_work_),
            of(update_),
            of(memory_),
            prices_[place].buffer,
            prices_[place].gradients_wait,
            prices_[place].small_buckets,
            prices_[place].links};
}

HEDDLE_INLINE search::shortest_paths priced_graph::least_memory(std::size_t k) const {
    return shortest_under([k](move_price const& move) { return move.memory[k]; });
}

} // namespace heddle

#endif
