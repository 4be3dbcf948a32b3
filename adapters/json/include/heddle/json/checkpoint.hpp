// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Checkpoints: a folder of safetensors files, in which each rank has saved its parts of parameters and of the
/// optimiser's moments, and an index that says what the parts are, so that any other plan can go on.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/base/printable.hpp>
#include <heddle/execute/stored_parts.hpp>
#include <heddle/execute/tensor.hpp>
#include <heddle/execute/tensor_part.hpp>
#include <heddle/json/document.hpp>
#include <heddle/json/durable_file.hpp>
#include <heddle/json/names.hpp>
#include <heddle/json/safetensors.hpp>
#include <heddle/json/safetensors_writer.hpp>
#include <heddle/program/program.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace heddle::json {

/// The index of a checkpoint.
struct checkpoint {
    struct tensor {
        tensor_shape shape;
        /// Tells whether the optimiser has moments of it.
        bool has_moments = false;
        friend bool operator==(tensor const&, tensor const&) = default;
    };
    /// The part of each tensor that a rank stores.
    using rank_parts = std::map<std::string, tensor_part>;

    std::string model;
    /// Where training was: steps made, iterations made, of which a step may have several, and the seed of what is
    /// random.
    std::uint64_t step = 0, iterations = 0, seed = 0;
    std::string optimizer;
    std::size_t moments = 0;
    element_type type = element_type::float64;
    /// The scale of gradients, and the steps since it was changed, if they are scaled.
    struct gradient_scale {
        double value = 1;
        std::uint64_t steps = 0;
        friend bool operator==(gradient_scale const&, gradient_scale const&) = default;
    };
    std::optional<gradient_scale> scale;
    /// The number of the save in its folder, which is in the names of its files.
    std::uint64_t save = 1;
    std::map<std::string, tensor> tensors;
    std::vector<rank_parts> ranks;

    friend bool operator==(checkpoint const&, checkpoint const&) = default;
};

/// Returns the index of what ranks store of a program, without what training adds.
/// *Throws* `input_error` if two parameters or buffers have one name.
[[nodiscard]] checkpoint describe(program const& p, std::vector<stored_parts> const& ranks);

/// *Throws* `input_error`, which begins with `place`, if a checkpoint is of another program: it has a tensor that the
/// program has not, or one of another shape, or lacks one that some rank is to store.
void require_fit(checkpoint const& c, std::string const& place, program const& p,
                 std::vector<stored_parts> const& wanted);

/// *Throws* `input_error` with the place if the text is no index.
[[nodiscard]] checkpoint parse_checkpoint(std::string_view text, std::string const& file);
[[nodiscard]] std::string to_text(checkpoint const& c);

/// The kinds of numbers that a checkpoint has of a tensor: those of the tensor itself, and the optimiser's moments,
/// from 1.
using checkpoint_kind = std::size_t;

/// Where the index of a folder's checkpoint is. Without it there is none.
[[nodiscard]] inline std::filesystem::path index_of(std::filesystem::path const& folder) {
    return folder / "checkpoint.json";
}
/// Returns the name of the file in which a rank saves its tensors of a kind.
[[nodiscard]] inline std::string file_of(checkpoint const& c, checkpoint_kind kind, std::size_t rank) {
    return (kind == 0 ? "parameters" : "moment_" + std::to_string(kind)) + "-" + std::to_string(c.save) + "-" +
           std::to_string(rank) + ".safetensors";
}

/// Saves one rank's tensors, of which `part(name, kind)` returns the dense tensor that the rank stores. Of ranks that
/// store the same part, the first saves it. Files of the folder's checkpoint stay as they are, if that has another
/// number. When it returns, all is on disk. *Throws* `file_error`.
template <class Scalar, class Parts>
void save_rank(std::filesystem::path const& folder, checkpoint const& c, std::size_t rank, Parts&& part);

/// Makes what all ranks have saved the folder's checkpoint, and removes what it had before. The folder has the old
/// checkpoint or the new one, whole, whenever this ends. One process calls it when all ranks have saved.
/// *Throws* `file_error`.
void commit(std::filesystem::path const& folder, checkpoint const& c);

/// Reads a checkpoint, whatever plan it was saved by.
class checkpoint_reader {
public:
    /// Reads the index. *Throws* `file_error` or `input_error`.
    explicit checkpoint_reader(std::filesystem::path folder)
        : folder_(std::move(folder)), index_(parse_checkpoint(read_text(json::index_of(folder_)), name())) {}

    [[nodiscard]] std::string name() const { return json::index_of(folder_).string(); }
    [[nodiscard]] checkpoint const& index() const { return index_; }

    /// Reads a part of a tensor, of those who have something of it. *Precondition:* the index has the tensor, and the
    /// moment. *Throws* `input_error` if files are not as the index says, `file_error` if they cannot be read.
    template <class Scalar>
    [[nodiscard]] dense_tensor<Scalar> read(std::string const& tensor, checkpoint_kind kind, tensor_part const& part);

private:
    [[nodiscard]] safetensors_file& file(checkpoint_kind kind, std::size_t rank);

    std::filesystem::path folder_;
    checkpoint index_;
    std::map<std::pair<checkpoint_kind, std::size_t>, safetensors_file> files_;
};

namespace detail {

/// Returns the tensors of a kind that a rank saves: those of which no rank before it stores the same part.
[[nodiscard]] inline std::vector<std::string> saved_by(checkpoint const& c, checkpoint_kind kind, std::size_t rank) {
    std::vector<std::string> names;
    for (auto const& [name, part] : c.ranks[rank]) {
        auto const is_same = [&, n = &name, p = &part](checkpoint::rank_parts const& other) {
            auto const found = other.find(*n);
            return found != other.end() && found->second == *p;
        };
        bool const is_first =
            std::none_of(c.ranks.begin(), c.ranks.begin() + static_cast<std::ptrdiff_t>(rank), is_same);
        if (is_first && (kind == 0 || c.tensors.at(name).has_moments)) names.push_back(name);
    }
    return names;
}

[[nodiscard]] inline std::string shape_text(tensor_shape const& shape) {
    std::string result = "[";
    for (auto const n : shape) result += (result.size() > 1 ? ", " : "") + std::to_string(n);
    return result + "]";
}

/// Returns the number of the save that a file is of, if it has a name that `file_of` gives.
[[nodiscard]] std::optional<std::uint64_t> save_of(std::string_view name);

} // namespace detail

template <class Scalar, class Parts>
void save_rank(std::filesystem::path const& folder, checkpoint const& c, std::size_t rank, Parts&& part) {
    std::error_code error;
    if (std::filesystem::create_directories(folder, error))
        sync_folder(std::filesystem::absolute(folder).parent_path());
    if (error) throw file_error(folder.string() + ": cannot be made: " + error.message());
    for (checkpoint_kind kind = 0; kind <= c.moments; ++kind) {
        auto const names = detail::saved_by(c, kind, rank);
        if (names.empty()) continue;
        std::vector<std::pair<std::string, tensor_shape>> tensors;
        for (auto const& name : names) tensors.emplace_back(name, c.ranks[rank].at(name).shape());
        safetensors_writer<Scalar> file(folder / file_of(c, kind, rank), tensors);
        for (auto const& name : names) file.write(part(name, kind));
        file.finish();
    }
    sync_folder(folder);
}

template <class Scalar>
dense_tensor<Scalar> checkpoint_reader::read(std::string const& tensor, checkpoint_kind kind, tensor_part const& part) {
    dense_tensor<Scalar> result(part.shape());
    std::vector<bool> is_there(result.data.size());
    auto missing = is_there.size();
    std::set<tensor_part> seen;
    for (std::size_t rank = 0; rank < index_.ranks.size() && missing > 0; ++rank) {
        auto const found = index_.ranks[rank].find(tensor);
        if (found == index_.ranks[rank].end() || !seen.insert(found->second).second) continue;
        auto const& theirs = found->second;
        if (count_common(theirs, part) == 0) continue;
        auto& in = file(kind, rank);
        auto const entry = in.tensors().find(tensor);
        if (entry == in.tensors().end()) throw input_error(in.name(), "lacks " + printable(tensor));
        if (entry->second.shape != theirs.shape() || entry->second.type != index_.type)
            throw input_error(in.name() + ": " + printable(tensor),
                              "has shape " + detail::shape_text(entry->second.shape) + " of " +
                                  std::string(name_of(element_types, entry->second.type)) + ", expected the index's " +
                                  detail::shape_text(theirs.shape()) + " of " +
                                  std::string(name_of(element_types, index_.type)));
        auto const read = in.read<Scalar>(entry->second);
        copy_common(theirs, read, part, result);
        heddle::detail::for_each_common_run(theirs, part, [&](extent, extent at, extent length) {
            for (extent n = at; n < at + length; ++n) {
                missing -= is_there[static_cast<std::size_t>(n)] ? 0 : 1;
                is_there[static_cast<std::size_t>(n)] = true;
            }
        });
    }
    if (missing > 0)
        throw input_error(name() + ": " + printable(tensor), "has " + std::to_string(missing) +
                                                                 " elements that no rank has saved, of " +
                                                                 std::to_string(is_there.size()) + " that are wanted");
    return result;
}

} // namespace heddle::json

#if HEDDLE_DEFINITIONS

#include <nlohmann/json.hpp>

namespace heddle::json {

HEDDLE_INLINE checkpoint describe(program const& p, std::vector<stored_parts> const& ranks) {
    checkpoint c;
    auto const indexed = index_program(p);
    for (auto const& parts : ranks) {
        auto& named_parts = c.ranks.emplace_back();
        for (auto const& [t, part] : parts) {
            auto const& info = p.tensor(t);
            if (!named_parts.emplace(info.name, part).second)
                throw input_error(printable(info.name), "is the name of two parameters or buffers, expected one");
            c.tensors[info.name] = {info.shape, indexed.tensors[t].is_parameter() && indexed.tensors[t].has_cotangent};
        }
    }
    return c;
}

HEDDLE_INLINE void require_fit(checkpoint const& c, std::string const& place, program const& p,
                               std::vector<stored_parts> const& wanted) {
    std::map<std::string, tensor_info const*> known;
    for (tensor_id t = 0; t < p.tensor_count(); ++t)
        if (auto const& info = p.tensor(t); info.role == tensor_role::parameter || info.role == tensor_role::buffer)
            known[info.name] = &info;
    std::string const other = "; the checkpoint is of the model " + printable(c.model);
    for (auto const& [name, stored] : c.tensors) {
        auto const found = known.find(name);
        if (found == known.end())
            throw input_error(place + ": " + printable(name), "is no parameter of the model" + other);
        if (found->second->shape != stored.shape)
            throw input_error(place + ": " + printable(name), "has shape " + detail::shape_text(stored.shape) +
                                                                  ", expected the model's " +
                                                                  detail::shape_text(found->second->shape) + other);
    }
    for (auto const& parts : wanted)
        for (auto const& [t, part] : parts)
            if (!c.tensors.contains(p.tensor(t).name))
                throw input_error(place, "lacks the parameter " + printable(p.tensor(t).name) + other);
}

HEDDLE_INLINE std::string to_text(checkpoint const& c) {
    nlohmann::ordered_json out;
    out["format"] = "heddle.checkpoint";
    out["version"] = 1;
    out["model"] = c.model;
    out["step"] = c.step;
    out["iterations"] = c.iterations;
    out["seed"] = static_cast<std::int64_t>(c.seed); // which may make it negative
    out["optimizer"] = c.optimizer;
    out["moments"] = c.moments;
    out["dtype"] = name_of(element_types, c.type);
    if (c.scale) out["gradient_scale"] = {{"value", c.scale->value}, {"steps", c.scale->steps}};
    out["save"] = c.save;
    out["tensors"] = nlohmann::ordered_json::object();
    for (auto const& [name, t] : c.tensors) out["tensors"][name] = {{"shape", t.shape}, {"moments", t.has_moments}};
    out["ranks"] = nlohmann::ordered_json::array();
    for (auto const& parts : c.ranks) {
        auto& rank = out["ranks"].emplace_back(nlohmann::ordered_json::object());
        for (auto const& [name, part] : parts) {
            auto& dimensions = rank[name] = nlohmann::ordered_json::array();
            for (auto const& ranges : part.dimensions) {
                auto& of = dimensions.emplace_back(nlohmann::ordered_json::array());
                for (auto const& r : ranges) of.push_back({r.begin, r.begin + r.count});
            }
        }
    }
    return out.dump() + "\n";
}

namespace detail {

[[nodiscard]] HEDDLE_INLINE tensor_part read_part(element const& e, tensor_shape const& shape) {
    if (e.size() != shape.size()) e.expected("places of " + std::to_string(shape.size()) + " dimensions");
    tensor_part part;
    e.for_each([&](element const& dimension) {
        extent const places = shape[part.dimensions.size()];
        auto& ranges = part.dimensions.emplace_back();
        dimension.takes(dimension.size() * sizeof(place_range));
        dimension.for_each([&](element const& range) {
            if (range.size() != 2) range.expected("where places begin and end");
            extent const least = ranges.empty() ? 0 : ranges.back().begin + ranges.back().count + 1;
            if (least >= places) range.fail("is beyond the " + std::to_string(places) + " places of the dimension");
            extent const begin = range.item(0).integer(least, places - 1);
            ranges.push_back({begin, range.item(1).integer(begin + 1, places) - begin});
        });
    });
    return part;
}

[[nodiscard]] HEDDLE_INLINE checkpoint::tensor read_tensor(element const& e) {
    e.allow_only({"shape", "moments"});
    checkpoint::tensor result;
    extent most = std::numeric_limits<extent>::max() / 8; // elements of eight bytes
    auto const dimensions = e.at("shape");
    dimensions.takes(dimensions.size() * sizeof(extent));
    dimensions.for_each([&](element const& d) {
        extent const n = d.integer(0, std::numeric_limits<extent>::max());
        if (n > most) dimensions.fail("makes more bytes than a file has");
        most /= std::max<extent>(n, 1);
        result.shape.push_back(n);
    });
    result.has_moments = e.at("moments").boolean();
    return result;
}

} // namespace detail

HEDDLE_INLINE checkpoint parse_checkpoint(std::string_view text, std::string const& file) {
    return detail::guarded(file, [&] {
        document const all(file, text, "checkpoint", 1);
        auto const root = all.root();
        root.allow_only({"format", "version", "model", "step", "iterations", "seed", "optimizer", "moments", "dtype",
                         "gradient_scale", "save", "tensors", "ranks"});
        checkpoint c;
        using int64 = std::numeric_limits<std::int64_t>;
        auto const number = [&](std::string_view field, std::int64_t most = int64::max()) {
            return static_cast<std::uint64_t>(root.at(field).integer(0, most));
        };
        constexpr std::int64_t most_moments = 8, most_saves = std::int64_t{1} << 62;
        c.model = root.at("model").text();
        c.step = number("step");
        c.iterations = number("iterations");
        c.seed = static_cast<std::uint64_t>(root.at("seed").integer(int64::min(), int64::max()));
        c.optimizer = root.at("optimizer").text();
        c.moments = number("moments", most_moments);
        c.type = root.at("dtype").choice(
            std::array{named{"float32", element_type::float32}, named{"float64", element_type::float64}});
        if (auto const scale = root.find("gradient_scale")) {
            scale->allow_only({"value", "steps"});
            c.scale = {scale->at("value").positive(),
                       static_cast<std::uint64_t>(scale->at("steps").integer(0, int64::max()))};
        }
        c.save = number("save", most_saves);
        for (auto const& [name, entry] : root.at("tensors").fields()) {
            entry.takes(sizeof(checkpoint::tensor) + name.size());
            c.tensors[name] = detail::read_tensor(entry);
        }
        root.at("ranks").for_each([&](element const& rank) {
            auto& parts = c.ranks.emplace_back();
            for (auto const& [name, entry] : rank.fields()) {
                auto const found = c.tensors.find(name);
                if (found == c.tensors.end()) entry.fail("is the part of a tensor that 'tensors' lacks");
                entry.takes(sizeof(tensor_part) + name.size());
                parts[name] = detail::read_part(entry, found->second.shape);
            }
        });
        return c;
    });
}

namespace detail {

HEDDLE_INLINE std::optional<std::uint64_t> save_of(std::string_view name) {
    auto const drop = [&](std::string_view begin) {
        bool const has = name.starts_with(begin);
        if (has) name.remove_prefix(begin.size());
        return has;
    };
    auto const number = [&]() -> std::optional<std::uint64_t> {
        std::uint64_t value = 0;
        auto const [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
        if (error != std::errc()) return {};
        name.remove_prefix(static_cast<std::size_t>(end - name.data()));
        return value;
    };
    bool const is_kind = drop("parameters-") || (drop("moment_") && number() && drop("-"));
    auto const save = is_kind ? number() : std::nullopt;
    return save && drop("-") && number() && name == ".safetensors" ? save : std::nullopt;
}

} // namespace detail

HEDDLE_INLINE void commit(std::filesystem::path const& folder, checkpoint const& c) {
    replace_durably(index_of(folder), to_text(c));
    std::set<std::string> kept;
    for (checkpoint_kind kind = 0; kind <= c.moments; ++kind)
        for (std::size_t rank = 0; rank < c.ranks.size(); ++rank) kept.insert(file_of(c, kind, rank));
    std::error_code error; // what cannot be removed is in nobody's way
    for (auto const& entry : std::filesystem::directory_iterator(folder, error)) {
        auto const name = entry.path().filename().string();
        auto const save = detail::save_of(name); // a later one may have begun
        if (save && *save <= c.save && !kept.contains(name)) std::filesystem::remove(entry.path(), error);
    }
}

HEDDLE_INLINE safetensors_file& checkpoint_reader::file(checkpoint_kind kind, std::size_t rank) {
    auto const found = files_.find({kind, rank});
    if (found != files_.end()) return found->second;
    return files_.emplace(std::pair(kind, rank), folder_ / file_of(index_, kind, rank)).first->second;
}

} // namespace heddle::json

#endif // HEDDLE_DEFINITIONS
