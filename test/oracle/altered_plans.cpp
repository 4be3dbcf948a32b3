// SPDX-License-Identifier: BSL-1.0
// Changes the values in files of plans of every kind, one after the other: what is then no longer so is noticed, except
// where nobody could derive it.
#include <heddle/clp/all.hpp>
#include <heddle/execute/pipeline_layout.hpp>
#include <heddle/heddle.hpp>
#include <heddle/json/all.hpp>
#include <heddle/synthesis/global_bound.hpp>
#include <support/block_programs.hpp>
#include <support/cases.hpp>
#include <support/device_groups.hpp>
#include <support/random_programs.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace altered {

namespace {

using namespace heddle;
using document = nlohmann::ordered_json;

/// Returns other values that might take a value's place; for a word, those of its kind.
std::vector<document> others_than(document const& value) {
    if (value.is_boolean()) return {!value.get<bool>()};
    if (value.is_number()) {
        double const x = value.get<double>();
        if (x == 0) return {1, -1, nullptr};
        if (value.is_number_integer() && std::abs(x) < 1e15) {
            auto const n = value.get<std::int64_t>();
            return {2 * n, n / 2, -n, n + 1, nullptr};
        }
        return {2 * x, x / 2, -x, 1.001 * x, nullptr};
    }
    if (!value.is_string()) return {};
    auto const text = value.get<std::string>();
    static std::vector<std::vector<std::string>> const vocabularies{
        {"optimal", "feasible", "limit", "infeasible"},
        {"padded", "grouped"},
        {"float32", "float16"},
        {"replicated", "mirrored", "partial", "shard(0)", "shard(1)"},
        {"1f1b", "gpipe", "oobleck"},
        {"amp", "ditto"}};
    std::vector<document> others{text + "x"};
    for (auto const& words : vocabularies)
        if (std::ranges::find(words, text) != words.end())
            for (auto const& word : words)
                if (word != text) others.push_back(word);
    return others;
}

/// Calls `visit(path, is_order)` with each value changed in each of the ways, one at a time, and with neighbours in
/// each list exchanged.
template <class Visit>
void for_each_change(document& value, std::string const& path, Visit const& visit) {
    auto const old = value;
    for (auto& other : others_than(old)) {
        if (other == old) continue;
        value = std::move(other);
        visit(path, false);
    }
    value = old;
    if (value.is_array())
        for (std::size_t n = 0; n + 1 < value.size(); ++n) {
            if (value[n] == value[n + 1]) continue;
            std::swap(value[n], value[n + 1]);
            visit(path, true);
            std::swap(value[n], value[n + 1]);
        }
    if (value.is_object())
        for (auto& [key, item] : value.items()) for_each_change(item, path + "/" + key, visit);
    if (value.is_array())
        for (std::size_t n = 0; n < value.size(); ++n) for_each_change(value[n], path + "/" + std::to_string(n), visit);
}

/// Tells whether a value may be anything: text, names, what a list in any order says, and equal devices of a stage.
bool is_free(std::string const& path, bool is_order) {
    auto const ends_with = [&](std::vector<char const*> const& ends) {
        return std::ranges::any_of(ends, [&](auto end) { return path.ends_with(end); });
    };
    if (path.starts_with("/layers/")) return path.ends_with("/name");
    if (is_order)
        return path == "/layers" || ends_with({"/steps", "/cuts", "/members", "/saved_tensors"}) ||
               (path.starts_with("/stages/") && path.find("/devices") != std::string::npos);
    return ends_with({"/reason", "/space", "/provenance/planner", "/provenance/model", "/provenance/cluster",
                      "/provenance/heddle", "/provenance/model_digest", "/provenance/cluster_digest"}) ||
           path.find("/warnings") != std::string::npos;
}
/// Tells whether a value is a choice of the plan: it is noticed only if the other choice has another price.
bool is_choice(std::string const& path) {
    return path.ends_with("/how") || path.ends_with("/overlaps_gradients") || path.ends_with("/bucket_bytes") ||
           path.starts_with("/schedule/stages");
}
/// Tells whether a path is claimed, also within the plan of a group. Claims are of fields; fields in lists have points.
bool is_claimed(std::string path, std::vector<std::string> const& claims) {
    std::string fields;
    for (std::size_t begin = 1, end = 0; end != std::string::npos; begin = end + 1) {
        end = path.find('/', begin);
        auto const part = path.substr(begin, end - begin);
        if (part.find_first_not_of("0123456789") != std::string::npos) fields += (fields.empty() ? "" : ".") + part;
    }
    return std::ranges::any_of(
        claims, [&](std::string const& claim) { return fields == claim || fields.starts_with(claim + "."); });
}

/// How a plan of either kind is judged: what is wrong with its text, what the model shows, and what the cluster shows
/// too.
struct judges {
    std::function<std::string(std::string const& text)> without, with;
    std::vector<std::string> claims_without, claims_with;
};

/// Tells whether there is much of a value, and all of it alike.
bool is_bulk(std::string const& path) {
    return std::ranges::any_of(
        std::vector{"/steps", "/tensors", "/groups/", "/trajectory", "/cuts/", "/operators", "/segments"},
        [&](auto field) { return path.starts_with(field); });
}

/// Checks whether each change is noticed unless it may be allowed: a share of the changes of the bulk, and ten times
/// that share of the others. A change is noticed without the cluster unless it is one of seconds or of the cluster.
void check_changes(std::string const& text, judges const& by, double share) {
    REQUIRE(by.without(text) == "");
    REQUIRE(by.with(text) == "");
    auto root = document::parse(text);
    test::random_source random(1);
    std::size_t told = 0, of_cluster = 0;
    for_each_change(root, "", [&](std::string const& path, bool is_order) {
        if (!random.chance(is_bulk(path) ? share : 10 * share)) return;
        CAPTURE(path);
        CAPTURE(root.at(document::json_pointer(path)).dump());
        auto const changed = root.dump();
        if (by.without(changed) != "") return void(++told);
        bool const may_be = is_free(path, is_order) || is_choice(path),
                   is_of_cluster = path == "/schedule/turn" || (is_order && path == "/devices");
        CHECK((may_be || is_of_cluster || is_claimed(path, by.claims_without)));
        if (by.with(changed) != "") return void(++of_cluster);
        CHECK((may_be || is_claimed(path, by.claims_with)));
    });
    CHECK(told > of_cluster);
    CHECK((of_cluster > 0 || share < 0.1));
}

template <class Parse, class Without, class With>
[[nodiscard]] std::string problem_of(std::string const& text, Parse const& parse, Without const& program_of,
                                     With const& figures_of) try {
    auto const p = parse(text);
    if (auto const checked = program_of(p); !checked) return checked.problem;
    return figures_of(p).problem;
} catch (input_error const& e) { return e.what(); }

void check(program const& program, plan p, cluster const& c, double share) {
    REQUIRE(p.exists());
    p.statistics.seconds = 0.25; // the same every time
    auto const read = [](std::string const& text) { return json::parse_plan(text); };
    auto const is_sound = [&](plan const& q) { return verify(program, q); };
    check_changes(json::write_plan(p),
                  {[&](std::string const& text) {
                       return problem_of(text, read, is_sound, [](plan const& q) { return verify_figures(q); });
                   },
                   [&](std::string const& text) {
                       return problem_of(text, read, is_sound, [&](plan const& q) { return verify_figures(q, c); });
                   },
                   claims_of(p, false), claims_of(p, true)},
                  share);
}
void check(program const& program, pipeline_plan p, cluster const& c, double share) {
    REQUIRE(p.exists());
    p.seconds = 0.25;
    auto const read = [](std::string const& text) { return json::parse_pipeline_plan(text); };
    auto const is_sound = [&](pipeline_plan const& q) { return verify(program, q); };
    auto claims = claims_of(p, false);
    if (!has_plain_memory(p))
        claims.insert(claims.end(),
                      {"provenance.optimizer_bytes_per_element", "micro_batch_size"}); // what memory depends on
    check_changes(json::write_pipeline_plan(p),
                  {[&](std::string const& text) {
                       return problem_of(text, read, is_sound,
                                         [&](pipeline_plan const& q) { return verify_figures(program, q); });
                   },
                   [&](std::string const& text) {
                       return problem_of(text, read, is_sound,
                                         [&](pipeline_plan const& q) { return verify_figures(program, q, c); });
                   },
                   std::move(claims), claims_of(p, true)},
                  share);
}

/// Two slow and two fast devices, on machines of one or two.
cluster two_and_two(int each) {
    cluster c;
    c.name = "two and two";
    c.types = {
        {"slow", bytes(1e7), bytes_per_second(1e8), seconds(1e-6), {{element_type::float32, {flops_per_second(1e7)}}}},
        {"fast",
         bytes(1.5e7),
         bytes_per_second(2e8),
         seconds(2e-6),
         {{element_type::float32, {flops_per_second(3e7)}}}}};
    c.machines = {{.type = 0, .devices = each, .count = 2 / each}, {.type = 1, .devices = each, .count = 2 / each}};
    c.intra = network_link{bytes_per_second(1e9), seconds(1e-6)};
    c.inter = network_link{bytes_per_second(1e8), seconds(1e-6)};
    return c;
}

plan hap(program const& p, cluster const& c, hap_options const& options = {}) {
    return plan_hap(p, c, clp::ratio_solver{}, options);
}

program four_products() { return test::residual_blocks(16, 12, 1); }

} // namespace

TEST_CASE("a plan with a value changed is refused, but where the value is a claim") {
    auto const p = four_products();
    auto const c = two_and_two(1);
    check(p, hap(p, c), c, 0.4);
    check(p, hap(p, c, {.training = {.overlaps_gradients = true}}), c, 0.05);
    check(p, plan_hidup(p, c, clp::ratio_solver{}), c, 0.1);
}

TEST_CASE("a plan of a shipped model with a value changed is refused, but where the value is a claim") {
    auto const c = json::read_cluster("examples/clusters/v100x2_p100x6.json");
    auto const p = json::read_model("examples/models/vit_2.json.gz").program;
    check(p, hap(p, c), c, 0.002);
}

TEST_CASE("a plan in segments or of device groups with a value changed is refused, but where the value is a claim") {
    auto const p = four_products();
    auto c = two_and_two(2);
    c.machines[0].is_group = true;
    check(p, hap(p, c), c, 0.1);
    // A product, which the one type is good at, and then what the other is.
    program_builder b;
    auto h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {b.input("x", {48, 16}), b.parameter("w", {16, 16})},
                     {.category = operator_class::matmul});
    for (int n = 0; n < 4; ++n) h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
    auto const other = b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
    c = two_and_two(1);
    c.types[0].bandwidth = bytes_per_second(1e9);
    c.types[1].bandwidth = bytes_per_second(1e7);
    c.inter = network_link{bytes_per_second(1e12), seconds(1e-9)};
    auto const made = hap(other, c, {.segments = {0, 1, 1, 1, 1, 1}});
    REQUIRE(made.ratios.size() == 2);
    check(other, made, c, 0.1);
}

TEST_CASE("a pipeline plan with a value changed is refused, but where the value is a claim") {
    auto const p = test::residual_blocks(8, 6, 6, true);
    auto const layers = repeated_layers(index_program(p));
    auto const apart = two_and_two(1), pairs = two_and_two(2);
    check(p, plan_amp(p, layers, apart), apart, 1);
    check(p, plan_amp(p, layers, pairs, {.shapes = {.tensor_degrees = {2}, .pipeline = 2}}), pairs, 0.02);
    check(p, plan_ditto(p, layers, apart), apart, 1);
    check(p, plan_ditto(p, layers, apart, {.micro_batch_size = 1}, oobleck_estimate{}), apart, 1);
    check(p, plan_ditto(p, layers, pairs, {.micro_batch_size = 2}), pairs, 0.02);
}

TEST_CASE("claims that belong together are refused together") {
    auto const p = four_products();
    auto const c = two_and_two(1);
    auto const made = hap(p, c, {.training = {.overlaps_gradients = true}});
    auto const said = [&](auto&& change, bool has_cluster) {
        auto other = made;
        change(other);
        return (has_cluster ? verify_figures(other, c) : verify_figures(other)).problem;
    };
    auto const scaled = [](double factor) {
        return [factor](plan& q) {
            for (auto* term : {&q.time.compute, &q.time.forward_communication, &q.time.backward_communication,
                               &q.time.gradient_communication, &q.time.update, &q.time.parameter_communication})
                *term *= factor;
            q.lower_bound *= factor;
            if (q.global_lower_bound) *q.global_lower_bound *= factor;
            for (auto& point : q.trajectory)
                if (point.cost) *point.cost *= factor;
        };
    };
    CHECK(said([](plan&) {}, true) == "");
    // Cost, times and bounds are those of another cluster, which this cluster shows.
    CHECK(said(scaled(0.5), false) == "");
    CHECK(said(scaled(0.5), true).starts_with("the time of "));
    CHECK(said(
              [](plan& q) {
                  for (auto& m : q.memory) m.activations /= 2;
              },
              false)
              .starts_with("device 0: its memory for activations is "));
    CHECK(said(
              [](plan& q) {
                  for (auto& d : q.devices) d.memory_limit = bytes(1);
              },
              false)
              .find(" bytes, its limit is 1 bytes") != std::string::npos);
    CHECK(said(
              [](plan& q) {
                  for (auto& d : q.devices) d.memory_limit = bytes(1e12);
              },
              true)
              .find("its memory limit is 1e+12 bytes") != std::string::npos);
    CHECK(said(
              [](plan& q) {
                  for (auto& d : q.devices) d.memory_limit = bytes(1e6);
              },
              true) == ""); // as if it had been asked for
    CHECK(said([](plan& q) { q.devices[0].memory_limit = bytes(1e6); }, false).find("that of another slow") !=
          std::string::npos);
    CHECK(said(
              [](plan& q) {
                  q.status = search::status::optimal;
                  q.lower_bound = 0.9 * q.cost();
              },
              false)
              .starts_with("the status is 'optimal', but the lower bound"));
    CHECK(said(
              [](plan& q) {
                  q.status = search::status::feasible;
                  q.lower_bound = q.cost();
              },
              false) == "the status is 'feasible', but the lower bound is the cost");
    CHECK(said([](plan& q) { std::ranges::reverse(q.ratios[0]); }, false)
              .starts_with("the counts of a cut are not what the ratios give"));
    CHECK(said([](plan& q) { std::ranges::reverse(q.devices); }, true) ==
          "device 0 is 'fast', the cluster's is 'slow'");
    // Counts are those of other shares, with the cost of these.
    CHECK(said(
              [](plan& q) {
                  for (auto& cut : q.cuts) std::ranges::reverse(cut.counts);
                  std::ranges::reverse(q.ratios[0]);
              },
              false)
              .starts_with("device 0: its memory for "));
    // Nobody can refute this one without searching; it is named as a claim.
    auto const claims = claims_of(made, true);
    CHECK(said(
              [](plan& q) {
                  q.status = search::status::optimal;
                  q.lower_bound = q.cost();
                  q.which_limit = search::limit_kind::none;
              },
              true) == "");
    for (char const* claim : {"status", "lower_bound", "baselines", "trajectory", "expanded"})
        CHECK(std::ranges::count(claims, claim) == 1);
    CHECK(std::ranges::count(claims, "cost") == 0);
    CHECK(std::ranges::count(claims_of(made, false), "cost") == 1);
}

TEST_CASE("a pipeline plan whose time, bound and schedule are changed together is refused") {
    auto const p = test::residual_blocks(8, 6, 6, true);
    auto const layers = repeated_layers(index_program(p));
    auto const c = two_and_two(1);
    for (std::int64_t const slots : {0, 3}) {
        auto const made = plan_ditto(p, layers, c, {.micro_batch_size = 1}, oobleck_estimate{slots});
        REQUIRE(made.exists());
        CHECK(made.more_slots == slots);
        CHECK(verify_figures(p, made, c).problem == "");
        CHECK(std::ranges::count(claims_of(made, true), "schedule") == 1);
        seconds slowest;
        for (auto const& s : made.stages) slowest = std::max(slowest, s.time);
        auto faster = made; // by a whole slot
        faster.time.pipeline -= slowest;
        faster.lower_bound = faster.cost();
        faster.status = search::status::optimal;
        faster.which_limit = search::limit_kind::none;
        seconds busy;
        for (auto const& s : made.stages) busy += s.time;
        faster.bubble = std::max(0.0, 1 - static_cast<double>(made.micro_batches) * (busy / faster.time.pipeline) /
                                              static_cast<double>(made.stages.size()));
        CHECK(verify_figures(faster).problem.starts_with("the pipeline's time is "));
        CHECK(verify_figures(p, faster, c).problem.starts_with("the pipeline's time is "));
        faster.more_slots = -made.micro_batches;
        CHECK(verify_figures(faster).problem.find("pipeline plan, schedule: cannot run") == 0);
        auto relabelled = made;
        relabelled.schedule = "1f1b";
        CHECK_FALSE(verify_figures(relabelled));
    }
    auto const made = plan_ditto(p, layers, c);
    CHECK(std::ranges::count(claims_of(made, true), "schedule") == 0);
    auto roomy = made; // little memory of much
    for (auto& d : roomy.devices) {
        d.memory = bytes(1);
        d.memory_limit = bytes(1e30);
    }
    CHECK(verify_figures(p, roomy).problem.find(": its memory is 1 bytes") != std::string::npos);
    CHECK_FALSE(verify_figures(p, roomy, c));
}

TEST_CASE("what a plan does not let anyone derive is named as a claim") {
    auto const p = four_products();
    auto const c = two_and_two(1);
    auto made = hap(p, c);
    CHECK(std::ranges::count(claims_of(made, false), "memory.communication") == 0);
    bool moves_shards = false;
    for (auto& s : made.steps)
        for_each_transfer(s.step, [&](transfer& t) {
            moves_shards = moves_shards || t.how;
            t.how.reset();
        });
    REQUIRE(moves_shards);
    for (auto& m : made.memory) m.communication = 0;
    CHECK(verify_figures(made).problem == "");
    CHECK(std::ranges::count(claims_of(made, false), "memory.communication") == 1);
    CHECK_FALSE(verify_figures(made, c));
    std::ranges::reverse(made.ratios[0]);
    CHECK(std::ranges::count(claims_of(made, true), "ratios") == 1);
}

TEST_CASE("what is moved for memory is told from what contradicts the ratios") {
    auto const p = four_products();
    auto c = two_and_two(1);
    auto made = hap(p, c);
    auto& counts = made.cuts.front().counts;
    for (auto const& [from, to] : {std::pair{2, 1}, {3, 0}}) {
        counts[static_cast<std::size_t>(from)] -= 3;
        counts[static_cast<std::size_t>(to)] += 3;
    }
    REQUIRE(std::ranges::min(counts) >= 0);
    auto found = evaluate(made, c);
    made.time = found.time;
    made.memory = found.memory;
    made.status = search::status::feasible;
    made.lower_bound = 0;
    made.global_lower_bound = std::nullopt;
    auto const priced = made.trajectory.front();
    made.trajectory.clear();
    CHECK(verify_figures(made).problem ==
          "the counts of a cut are not what the ratios give, rounded, though that would fit into memory");
    // If it is said to be priced, it might be cheaper; the cluster shows that it is not.
    made.trajectory = {{priced.origin, made.ratios, made.cost()}};
    CHECK(verify_figures(made).problem == "");
    CHECK(std::ranges::count(claims_of(made, false), "ratios") == 1);
    CHECK(verify_figures(made, c).problem ==
          "the counts of a cut are not what the ratios give, rounded, though that would fit and be cheaper");
    for (auto* limit : {&c.types[1].memory, &made.devices[2].memory_limit, &made.devices[3].memory_limit})
        *limit = bytes(made.memory[2].total());
    CHECK(verify_figures(made, c).problem == "");
}

TEST_CASE("a pipeline plan whose devices are said to be on another machine is refused before it is laid out") {
    auto const p = test::residual_blocks(8, 6, 6, true);
    auto const c = two_and_two(1);
    auto plan = plan_ditto(p, repeated_layers(index_program(p)), c);
    REQUIRE(plan.exists());
    for (auto& d : plan.devices) d.machine = 3;
    CHECK(verify_figures(p, plan, c).problem ==
          "pipeline plan, devices: device 0 is on machine 3, in the cluster on 0");
}

/// Two layers of products and activations of random sizes.
static program random_layers(test::random_source& random) {
    program_builder b;
    auto h = b.input("x", {8 * random.between(1, 3), 4});
    extent width = 4;
    for (int n = 0; n < 2; ++n) {
        extent const next = random.between(2, 9);
        h = b.apply("linear", "(b k), (n k) -> (b n); 0*1", {h, b.parameter("w" + std::to_string(n), {next, width})},
                    {.category = operator_class::matmul});
        h = b.apply("relu", "(b n) -> (b n)", {h}, {.saved_results = {0}});
        width = next;
    }
    return b.finish(b.apply("sum", "(b n) -> (); 0", {h}));
}

TEST_CASE("plans that planners make say what is so, where memory binds too") {
    std::size_t found = 0;
    auto const hold = [&](auto const& made, verification const& checked) {
        if (!made.exists()) return;
        CHECK_MESSAGE(checked, checked.problem);
        ++found;
    };
    for (std::uint64_t seed = 0; seed < test::cases(25u); ++seed) {
        CAPTURE(seed);
        test::random_source random(seed);
        auto c = two_and_two(random.chance(0.5) ? 1 : 2);
        for (auto& type : c.types) type.memory = bytes(random.log_between(300, 1e5));
        auto const any = test::random_program(random), layers = random_layers(random);
        for (bool const overlaps : {false, true}) {
            auto const made = hap(any, c, {.training = {.overlaps_gradients = overlaps}});
            hold(made, verify_figures(made, c));
        }
        auto const turns = plan_hidup(layers, c, clp::ratio_solver{}, {.compares = false});
        hold(turns, verify_figures(turns, c));
        auto const cuts = layers_at(index_program(layers), {0, 2, 4, 5});
        auto const strategy = plan_amp(layers, cuts, c);
        hold(strategy, verify_figures(layers, strategy, c));
        auto const stages =
            plan_ditto(layers, cuts, c, {.split = random.chance(0.5) ? machine_split::halves : machine_split::free});
        hold(stages, verify_figures(layers, stages, c));
        auto const grouped = test::random_grouped_case(seed);
        auto const groups = test::cluster_of(grouped.plan);
        auto const of_groups = hap(grouped.program, groups);
        hold(of_groups, verify_figures(of_groups, groups));
    }
    CHECK(found > test::cases(75u));
}

} // namespace altered
