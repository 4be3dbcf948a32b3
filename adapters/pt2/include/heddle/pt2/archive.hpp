// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief The graph in an archive that `torch.export.save` wrote: one entry of a zip, of which nothing else is read.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/base/error.hpp>
#include <heddle/json/file.hpp>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace heddle::pt2 {

/// Whether these bytes begin as a zip does.
[[nodiscard]] bool is_archive(std::string_view bytes);

/// Likewise those of a file; not of one that cannot be read.
[[nodiscard]] bool is_archive_file(std::filesystem::path const& path);

/// Whether a file is a TorchScript module, as `torch.jit.save` writes it. *Throws* `input_error` if it is a damaged
/// archive.
[[nodiscard]] bool is_torchscript(std::filesystem::path const& path);

/// The names of an archive's entries, their sizes and checksums: what tells whether its content has changed, without
/// its weights being read. *Throws* `input_error`.
[[nodiscard]] std::string list_of_entries(std::filesystem::path const& path);

/// The text of the graph in an archive that is a file; its other entries, weights of any size among them, are not read.
/// *Throws* `input_error` naming file and entry where it is damaged, too large, or no exported program.
[[nodiscard]] std::string graph_of_archive(std::filesystem::path const& path, std::size_t limit = json::largest_file);

/// Likewise of one in memory; `name` stands in messages.
[[nodiscard]] std::string graph_of_archive(std::string_view bytes, std::string const& name,
                                           std::size_t limit = json::largest_file);

} // namespace heddle::pt2

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>

#include <zip.h>

#include <array>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

namespace heddle::pt2 {

HEDDLE_INLINE bool is_archive(std::string_view bytes) { return bytes.starts_with("PK\x03\x04"); }

HEDDLE_INLINE bool is_archive_file(std::filesystem::path const& path) {
    std::array<char, 4> head{};
    std::ifstream(path, std::ios::binary).read(head.data(), head.size());
    return is_archive({head.data(), head.size()});
}

namespace detail {

struct discard_zip {
    void operator()(zip_t* archive) const { zip_discard(archive); }
};

struct close_entry {
    void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};

using zip_handle = std::unique_ptr<zip_t, discard_zip>;

HEDDLE_INLINE std::string text_of(int code) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    std::string text = zip_error_strerror(&error);
    zip_error_fini(&error);
    return text;
}

HEDDLE_INLINE zip_handle open_archive(std::filesystem::path const& path) {
    int code = 0;
    zip_handle archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
    if (!archive) throw input_error(path.string(), "is no whole archive: " + text_of(code));
    return archive;
}

/// *Lifetime:* refers to the bytes.
HEDDLE_INLINE zip_handle open_archive(std::string_view bytes, std::string const& name) {
    zip_error_t error;
    zip_error_init(&error);
    auto* const source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
    zip_handle archive(source ? zip_open_from_source(source, ZIP_RDONLY, &error) : nullptr);
    std::string const problem = zip_error_strerror(&error);
    zip_error_fini(&error);
    if (!archive) {
        if (source) zip_source_free(source);
        throw input_error(name, "is no whole archive: " + problem);
    }
    return archive;
}

/// The folders of an entry, without the archive's own that its writer may have put first: `models/model.json` of
/// `llama/models/model.json`.
[[nodiscard]] HEDDLE_INLINE std::string_view inner_name(std::string_view entry) {
    for (std::string_view const folder : {"models/", "data/", "code/"})
        if (auto const at = entry.find(folder); at == 0 || (at != std::string_view::npos && entry[at - 1] == '/'))
            return entry.substr(at);
    auto const slash = entry.rfind('/');
    return slash == std::string_view::npos ? entry : entry.substr(slash + 1);
}

/// Calls `visit(number, name)` for every entry that has a name.
template <class Visitor>
void for_each_entry(zip_t& archive, Visitor visit) {
    auto const count = static_cast<zip_uint64_t>(std::max<zip_int64_t>(0, zip_get_num_entries(&archive, 0)));
    for (zip_uint64_t i = 0; i < count; ++i)
        if (char const* const name = zip_get_name(&archive, i, ZIP_FL_ENC_RAW)) visit(i, std::string_view(name));
}

/// What an archive is that holds no graph, as far as its entries tell.
[[nodiscard]] HEDDLE_INLINE std::string foreign_archive(std::vector<std::string_view> const& names) {
    auto const has = [&](std::string_view name) { return algorithm::find(names, name) != names.end(); };
    if (has("serialized_exported_program.json"))
        return "is of the layout of PyTorch 2.1 to 2.7 (serialized_exported_program.json); expected "
               "models/model.json, as torch.export.save of a newer release writes it";
    if (has("constants.pkl") || has("code/"))
        return "is a TorchScript module; expected an exported program, as torch.export.save writes it";
    if (has("data.pkl"))
        return "holds weights alone, as torch.save writes them; expected an exported program, as torch.export.save "
               "writes it";
    return "has no entry models/model.json; expected an exported program, as torch.export.save writes it";
}

/// The number of the entry that is the graph: `models/model.json`, or the only one of `models/` if that has another
/// name.
[[nodiscard]] HEDDLE_INLINE zip_uint64_t find_graph(zip_t& archive, std::string const& file) {
    std::vector<std::string_view> names;
    std::vector<std::pair<zip_uint64_t, std::string_view>> models;
    for_each_entry(archive, [&](zip_uint64_t i, std::string_view name) {
        auto const inner = inner_name(name);
        names.push_back(inner.starts_with("code/") ? "code/" : inner);
        if (inner.starts_with("models/") && inner.ends_with(".json")) models.emplace_back(i, inner);
    });
    if (models.empty()) throw input_error(file, foreign_archive(names));
    auto const is_model = [](auto const& m) { return m.second == "models/model.json"; };
    auto const found = models.size() == 1 ? models.begin() : algorithm::find_if(models, is_model);
    if (found == models.end() || algorithm::count_if(models, is_model) > 1)
        throw input_error(file, "has " + std::to_string(models.size()) +
                                    " graphs in models/, expected one, or one that is models/model.json");
    return found->first;
}

HEDDLE_INLINE std::string read_graph(zip_t& archive, std::string const& file, std::size_t limit) {
    auto const number = find_graph(archive, file);
    std::string const place = file + ": " + zip_get_name(&archive, number, ZIP_FL_ENC_RAW);
    zip_stat_t stat;
    zip_stat_init(&stat);
    bool const known = zip_stat_index(&archive, number, 0, &stat) == 0 && (stat.valid & ZIP_STAT_SIZE);
    if (!known) throw input_error(place, "has no size");
    if (stat.size > limit)
        throw input_error(place,
                          "holds " + std::to_string(stat.size) + " bytes, expected at most " + std::to_string(limit));
    std::unique_ptr<zip_file_t, close_entry> const entry(zip_fopen_index(&archive, number, 0));
    if (!entry) throw input_error(place, std::string("cannot be read: ") + zip_strerror(&archive));
    std::string text;
    for (std::string block(1u << 18, '\0');;) {
        auto const read = zip_fread(entry.get(), block.data(), block.size());
        if (read < 0) throw input_error(place, std::string("cannot be read: ") + zip_file_strerror(entry.get()));
        if (read == 0) break;
        if (static_cast<std::size_t>(read) > limit - text.size())
            throw input_error(place, "holds more than " + std::to_string(limit) + " bytes, expected fewer");
        text.append(block, 0, static_cast<std::size_t>(read));
    }
    if (text.size() != stat.size) throw input_error(place, "ends in the middle");
    return text;
}

} // namespace detail

HEDDLE_INLINE bool is_torchscript(std::filesystem::path const& path) {
    if (!is_archive_file(path)) return false;
    bool has_code = false, has_graph = false;
    detail::for_each_entry(*detail::open_archive(path), [&](zip_uint64_t, std::string_view name) {
        auto const inner = detail::inner_name(name);
        has_code = has_code || inner.starts_with("code/") || inner == "constants.pkl";
        has_graph = has_graph || inner.starts_with("models/");
    });
    return has_code && !has_graph;
}

HEDDLE_INLINE std::string list_of_entries(std::filesystem::path const& path) {
    std::string list;
    auto const archive = detail::open_archive(path);
    detail::for_each_entry(*archive, [&](zip_uint64_t i, std::string_view name) {
        zip_stat_t stat;
        zip_stat_init(&stat);
        zip_stat_index(archive.get(), i, 0, &stat);
        list.append(name).append(" " + std::to_string(stat.size) + " " + std::to_string(stat.crc) + "\n");
    });
    return list;
}

HEDDLE_INLINE std::string graph_of_archive(std::filesystem::path const& path, std::size_t limit) {
    return detail::read_graph(*detail::open_archive(path), path.string(), limit);
}

HEDDLE_INLINE std::string graph_of_archive(std::string_view bytes, std::string const& name, std::size_t limit) {
    return detail::read_graph(*detail::open_archive(bytes, name), name, limit);
}

} // namespace heddle::pt2

#endif
