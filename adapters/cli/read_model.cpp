// SPDX-License-Identifier: BSL-1.0
// Model files, by their content.
#include "plan_input.hpp"
#include "torchscript.hpp"

#include <heddle/base/error.hpp>

#ifdef HEDDLE_HAS_PT2
#include <heddle/json/digest.hpp>
#include <heddle/json/names.hpp>
#include <heddle/pt2/archive.hpp>
#include <heddle/pt2/model.hpp>

#include <charconv>
#include <string_view>
#include <utility>
#endif

namespace heddle::cli {

#ifdef HEDDLE_HAS_PT2

namespace {

/// Returns an input of a module as an option names it: `tokens=4x128:int64`.
torchscript_input parse_input(std::string const& text) {
    auto const fail = [&] {
        throw input_error("--input", "'" + text +
                                         "' is no input, expected NAME=SIZES such as tokens=4x128:int64, or "
                                         "x=4x128 for float32");
    };
    auto const equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) fail();
    torchscript_input input{text.substr(0, equals), {}, element_type::float32};
    auto sizes = std::string_view(text).substr(equals + 1);
    if (auto const colon = sizes.find(':'); colon != std::string_view::npos) {
        auto const type = json::value_of(json::element_types, sizes.substr(colon + 1));
        if (!type) fail();
        input.type = *type;
        sizes = sizes.substr(0, colon);
    }
    constexpr extent largest = extent{1} << 40;
    for (auto at = sizes.data(), end = at + sizes.size(); at != end;) {
        auto const [next, error] = std::from_chars(at, end, input.shape.emplace_back());
        bool const ends = next == end;
        if (error != std::errc() || input.shape.back() < 1 || input.shape.back() > largest ||
            (!ends && (*next != 'x' || next + 1 == end)))
            fail();
        at = ends ? end : next + 1;
    }
    return input;
}

} // namespace

json::model read_model(std::string const& path, std::vector<std::string> const& inputs) {
    if (!pt2::is_torchscript(path)) {
        if (!inputs.empty())
            throw input_error("--input", "is for TorchScript modules; " + path + " says its own sizes");
        return pt2::read_model(path);
    }
    std::vector<torchscript_input> parsed;
    for (auto const& text : inputs) {
        parsed.push_back(parse_input(text));
        for (std::size_t i = 0; i + 1 < parsed.size(); ++i)
            if (parsed[i].name == parsed.back().name)
                throw input_error("--input", "'" + text + "' gives an input a second time");
    }
    auto model = read_torchscript(path, parsed);
    std::string content = pt2::list_of_entries(path);
    for (auto const& text : inputs) content += text + "\n";
    model.digest = json::digest(content);
    return model;
}

#else

json::model read_model(std::string const& path, std::vector<std::string> const& inputs) {
    if (!inputs.empty()) throw input_error("--input", "is for TorchScript modules, which need a build with libzip");
    return json::read_model(path);
}

#endif

} // namespace heddle::cli
