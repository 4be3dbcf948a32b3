// SPDX-License-Identifier: BSL-1.0
// Checkpoints by one plan are read by another, whole or not at all.
#include "mutations.hpp"

#include <heddle/json/checkpoint.hpp>
#include <support/cases.hpp>
#include <support/errors.hpp>
#include <support/random_plans.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace heddle;
namespace fs = std::filesystem;

namespace {

/// A folder that lasts as long as the test.
struct scratch_folder {
    fs::path path = fs::temp_directory_path() / ("heddle_checkpoint_" + std::to_string(std::random_device{}()));
    scratch_folder() { fs::create_directory(path); }
    scratch_folder(scratch_folder const&) = delete;
    scratch_folder& operator=(scratch_folder const&) = delete;
    ~scratch_folder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
};

/// The numbers of a kind of each tensor, whole.
template <class Scalar>
using whole_numbers = std::map<std::pair<std::string, json::checkpoint_kind>, dense_tensor<Scalar>>;

template <class Scalar>
whole_numbers<Scalar> random_numbers(json::checkpoint const& c, test::random_source& random) {
    whole_numbers<Scalar> all;
    for (auto const& [name, t] : c.tensors)
        for (json::checkpoint_kind kind = 0; kind <= (t.has_moments ? c.moments : 0); ++kind) {
            auto& x = all.emplace(std::pair(name, kind), t.shape).first->second;
            for (auto& number : x.data) number = static_cast<Scalar>(random.between(-1.0, 1.0));
        }
    return all;
}

/// Saves all ranks, each of which has its parts of these numbers.
template <class Scalar>
void save(fs::path const& folder, json::checkpoint const& c, whole_numbers<Scalar> const& numbers) {
    for (std::size_t rank = 0; rank < c.ranks.size(); ++rank)
        json::save_rank<Scalar>(folder, c, rank, [&](std::string const& name, json::checkpoint_kind kind) {
            auto const& whole = numbers.at({name, kind});
            auto const& part = c.ranks[rank].at(name);
            dense_tensor<Scalar> mine(part.shape());
            copy_common(tensor_part::whole(whole.dims), whole, part, mine);
            return mine;
        });
}

/// Reads what all ranks of `as` store, and returns it whole.
template <class Scalar>
whole_numbers<Scalar> read(fs::path const& folder, json::checkpoint const& as) {
    json::checkpoint_reader from(folder);
    whole_numbers<Scalar> all;
    for (auto const& parts : as.ranks)
        for (auto const& [name, part] : parts)
            for (json::checkpoint_kind kind = 0; kind <= (as.tensors.at(name).has_moments ? as.moments : 0); ++kind) {
                auto& whole = all.try_emplace({name, kind}, as.tensors.at(name).shape).first->second;
                auto const mine = from.read<Scalar>(name, kind, part);
                copy_common(part, mine, tensor_part::whole(whole.dims), whole);
            }
    return all;
}

json::checkpoint index_of_plan(program const& p, plan const& what) {
    auto c = json::describe(p, stored_parts_of(p, what));
    c.model = "some";
    c.optimizer = "adam";
    c.moments = 2;
    return c;
}

/// Two ranks, of which the first has three rows and every other column of the matrix, the second the rest.
json::checkpoint two_ranks() {
    json::checkpoint c;
    c.model = "some";
    c.optimizer = "sgd";
    c.moments = 1;
    c.step = c.iterations = 7;
    c.tensors = {{"bias", {{4}, true}}, {"weight", {{4, 6}, true}}, {"table", {{2}, false}}};
    auto const table = tensor_part::whole({2});
    c.ranks = {{{"bias", {{{{0, 3}}}}}, {"weight", {{{{0, 4}}, {{0, 1}, {2, 1}, {4, 1}}}}}, {"table", table}},
               {{"bias", {{{{3, 1}}}}}, {"weight", {{{{0, 4}}, {{1, 1}, {3, 1}, {5, 1}}}}}, {"table", table}}};
    return c;
}

std::string problem_of(std::string const& text) {
    return test::error_of([&] { (void)json::parse_checkpoint(text, "c.json"); });
}

std::string with(json::checkpoint const& c, std::string const& old, std::string const& changed) {
    auto text = json::to_text(c);
    auto const at = text.find(old);
    REQUIRE(at != std::string::npos);
    return text.replace(at, old.size(), changed);
}

template <class Scalar>
void reshard_there_and_back(int cases) {
    int moved = 0;
    for (int n = 1; n <= cases; ++n) {
        auto const seed = static_cast<std::uint64_t>(n);
        CAPTURE(seed);
        test::random_source random(seed);
        auto const p = test::random_program(random, {.least_operators = 3, .most_operators = 8});
        auto const indexed = index_program(p);
        auto const plan_on = [&] {
            return test::random_plan(indexed, static_cast<std::size_t>(random.between(1, 4)), random);
        };
        auto a = index_of_plan(p, plan_on()), b = index_of_plan(p, plan_on());
        a.type = b.type = json::type_of_scalar<Scalar>;
        scratch_folder const first, second, third;
        auto const numbers = random_numbers<Scalar>(a, random);
        save(first.path, a, numbers);
        json::commit(first.path, a);
        auto const by_b = read<Scalar>(first.path, b);
        REQUIRE(by_b == numbers);
        save(second.path, b, by_b);
        json::commit(second.path, b);
        auto const back = read<Scalar>(second.path, a);
        CHECK(back == numbers);
        save(third.path, a, back);
        json::commit(third.path, a);
        for (auto const& file : fs::directory_iterator(first.path)) { // files too are the same
            auto const bytes = [](fs::path const& path) {
                std::ifstream in(path, std::ios::binary);
                return std::string(std::istreambuf_iterator<char>(in), {});
            };
            CHECK(bytes(file.path()) == bytes(third.path / file.path().filename()));
        }
        moved += a.ranks != b.ranks;
    }
    CHECK(moved > cases / 2);
}

} // namespace

TEST_CASE("from plan A to plan B and back, every bit is the same") {
    reshard_there_and_back<double>(test::cases(30));
    reshard_there_and_back<float>(test::cases(10));
}

TEST_CASE("an index is read as it was written") {
    auto c = two_ranks();
    c.seed = ~std::uint64_t{0};
    CHECK(json::parse_checkpoint(json::to_text(c), "c.json") == c);
    c.scale = {4096, 17};
    CHECK(json::parse_checkpoint(json::to_text(c), "c.json") == c);
    auto const page = json::read_text("docs/reference/formats.md");
    auto const begin = page.rfind("```json\n") + 8;
    auto const example = json::parse_checkpoint(page.substr(begin, page.find("```", begin) - begin), "page");
    CHECK(example.ranks[0].at("w").shape() == tensor_shape{2, 4});
    CHECK(json::parse_checkpoint(json::to_text(example), "page") == example);
}

TEST_CASE("indices that lie are refused with the place") {
    auto c = two_ranks();
    c.scale = {4096, 17};
    auto const refused = [&](std::string const& old, std::string const& changed, std::string const& told) {
        auto const problem = problem_of(with(c, old, changed));
        CHECK_MESSAGE(test::contains(problem, told), problem);
    };
    refused("heddle.checkpoint", "heddle.plan", "format: is \"heddle.plan\"");
    refused("\"version\":1", "\"version\":9", "is heddle.checkpoint version 9");
    refused("\"shape\":[4]", "\"shape\":[-4]", "tensors.bias.shape[0]: is -4");
    refused("\"shape\":[4]", "\"shape\":[4294967296,4294967296]", "tensors.bias.shape: makes more bytes");
    refused("\"bias\":[[[0,3]]]", "\"bias\":[[[0,5]]]", "ranks[0].bias[0][0][1]: is 5");
    refused("\"bias\":[[[0,3]]]", "\"bias\":[[[2,1]]]", "ranks[0].bias[0][0][1]: is 1");
    refused("\"bias\":[[[0,3]]]", "\"bias\":[[[0,1],[1,3]]]", "ranks[0].bias[0][1][0]: is 1");
    refused("\"bias\":[[[0,3]]]", "\"bias\":[[[0,4],[5,6]]]", "ranks[0].bias[0][1]: is beyond");
    refused("\"bias\":[[[0,3]]]", "\"bias\":[]", "ranks[0].bias: is an array of 0, expected places of 1 dimensions");
    refused("\"bias\":[[[0,3]]]", "\"other\":[[[0,3]]]",
            "ranks[0].other: is the part of a tensor that 'tensors' lacks");
    refused("\"dtype\":\"float64\"", "\"dtype\":\"int8\"", "dtype: is \"int8\"");
    refused("\"moments\":1", "\"moments\":99", "moments: is 99");
    refused("\"value\":4096.0", "\"value\":0", "gradient_scale.value: is 0");
    refused("\"steps\":17", "\"steps\":-1", "gradient_scale.steps: is -1");
    refused("\"step\":7", "\"stage\":7", "unknown field 'stage'");
    test::check_mutations(15, 2000, json::to_text(c), true,
                          [](std::string const& text) { (void)json::parse_checkpoint(text, "fuzzed"); });
}

TEST_CASE("files that are not as the index says are refused") {
    auto c = two_ranks();
    test::random_source random(1);
    scratch_folder const folder;
    auto const numbers = random_numbers<double>(c, random);
    save(folder.path, c, numbers);
    json::commit(folder.path, c);
    CHECK(read<double>(folder.path, c) == numbers);
    auto const problem = [&] {
        try {
            (void)read<double>(folder.path, c);
        } catch (error const& e) { return std::string(e.what()); }
        return std::string("nothing thrown");
    };
    auto const file = folder.path / "moment_1-1-1.safetensors";
    auto const size = fs::file_size(file);
    fs::resize_file(file, size - 1);
    CHECK_MESSAGE(test::contains(problem(), "moment_1-1-1.safetensors"), problem());
    fs::remove(file);
    CHECK_MESSAGE(test::contains(problem(), "moment_1-1-1.safetensors: cannot be read"), problem());
    fs::copy_file(folder.path / "moment_1-1-0.safetensors", file); // of other shapes
    CHECK_MESSAGE(test::contains(problem(), "bias: has shape [3] of float64, expected the index's [1]"), problem());

    auto lacking = c;
    lacking.ranks.pop_back();
    json::commit(folder.path, lacking);
    CHECK_MESSAGE(test::contains(problem(), "bias: has 1 elements that no rank has saved, of 1"), problem());
    fs::remove(json::index_of(folder.path));
    CHECK_MESSAGE(test::contains(problem(), "checkpoint.json: cannot be read"), problem());
}

TEST_CASE("a checkpoint of another model is refused by the tensor") {
    test::random_source random(3);
    auto const p = test::random_program(random, {.least_operators = 6, .most_operators = 8});
    auto const parts = stored_parts_of(p, test::random_plan(index_program(p), 2, random));
    auto const c = json::describe(p, parts);
    REQUIRE(!c.tensors.empty());
    auto const name = c.tensors.begin()->first;
    auto const told = [&](json::checkpoint const& changed) {
        return test::error_of([&] { json::require_fit(changed, "c.json", p, parts); });
    };
    CHECK(told(c) == "nothing thrown");
    CHECK(test::contains(told(two_ranks()),
                         "c.json: bias: is no parameter of the model; the checkpoint is of the model some"));
    auto changed = c;
    changed.tensors.at(name).shape.push_back(2);
    CHECK_MESSAGE(test::contains(told(changed), "c.json: " + name + ": has shape ["), told(changed));
    changed.tensors.erase(name);
    CHECK_MESSAGE(test::contains(told(changed), "c.json: lacks the parameter " + name), told(changed));
}

TEST_CASE("until a save is committed, and if it fails, the folder has the checkpoint before") {
    auto first = two_ranks();
    test::random_source random(2);
    scratch_folder const folder;
    auto const old = random_numbers<double>(first, random), later = random_numbers<double>(first, random);
    save(folder.path, first, old);
    json::commit(folder.path, first);
    auto next = first;
    next.save = 2;
    next.step = 8;
    json::save_rank<double>(folder.path, next, 1, [&](std::string const& name, json::checkpoint_kind) {
        return dense_tensor<double>(next.ranks[1].at(name).shape()); // then this process is killed
    });
    CHECK(read<double>(folder.path, first) == old);

    // No file may grow beyond its header: as if the disk were full.
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    auto const handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit const full{100, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
    auto const told = test::error_of<file_error>([&] { save(folder.path, next, later); });
    auto const index_told = test::error_of<file_error>([&] { json::commit(folder.path, next); });
    setrlimit(RLIMIT_FSIZE, &before);
    (void)std::signal(SIGXFSZ, handler);
    CHECK_MESSAGE(test::contains(told, "parameters-2-0.safetensors: cannot be written: File too large"), told);
    CHECK_MESSAGE(test::contains(index_told, "checkpoint.json.part: cannot be written"), index_told);
    CHECK(!fs::exists(folder.path / "parameters-2-0.safetensors"));
    CHECK(!fs::exists(folder.path / "checkpoint.json.part"));
    CHECK(read<double>(folder.path, first) == old);

    std::ofstream(folder.path / "parameters-2.safetensors") << "another's";
    std::ofstream(folder.path / "moment_1-2-7.safetensors") << "of a save that was given up";
    std::ofstream(folder.path / "parameters-3-1.safetensors") << "of a rank that is ahead";
    save(folder.path, next, later);
    json::commit(folder.path, next);
    CHECK(json::checkpoint_reader(folder.path).index() == next);
    CHECK(read<double>(folder.path, next) == later);
    CHECK(!fs::exists(folder.path / "parameters-1-0.safetensors"));
    CHECK(!fs::exists(folder.path / "moment_1-2-7.safetensors"));
    CHECK(fs::exists(folder.path / "parameters-2.safetensors"));
    CHECK(fs::exists(folder.path / "parameters-3-1.safetensors"));
}
