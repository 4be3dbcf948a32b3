// SPDX-License-Identifier: BSL-1.0
#include <heddle/cluster/fit.hpp>
#include <heddle/html/all.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using namespace heddle;

TEST_CASE("the page of a fit carries every size with what is predicted of it") {
    std::vector<sample> samples;
    auto const add = [&](auto what, double work, double size, double time) {
        sample s;
        s.what = what;
        s.ranks = 4;
        s.device = "</script>";
        s.type = element_type::float32;
        s.work = flops(work);
        s.size = bytes(size);
        s.time = seconds(time);
        samples.push_back(s);
    };
    for (double n : {1.0, 2.0, 3.0, 5.0, 8.0}) {
        add(collective::all_reduce, 0, n * 1e6, 1e-4 + n * 1e-3 * (n == 3 ? 1.1 : 1));
        add(operator_class::matmul, n * 1e9, n * 1e5, 1e-5 + n * 1e-4);
    }
    add(operator_class::elementwise, 1, 1e6, 1e-5);
    auto const report = fit_samples(samples);
    auto const page = html::fit_page(report, "fit of </script>", {"a warning"});
    for (auto const* elsewhere : {"http:", "https:", "src=", "@import", "url("})
        CHECK(page.find(elsewhere) == page.npos);
    std::string const begin = R"(id="data">)";
    auto const at = page.find(begin) + begin.size();
    auto const shown = nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
    CHECK(shown["title"] == "fit of </script>");
    CHECK(shown["warnings"][0] == "a warning");
    REQUIRE(shown["fits"].size() == 3);
    auto const check = [&](nlohmann::json const& fit, auto const& of) {
        CHECK(fit["samples"] == of.quality.samples);
        REQUIRE(fit["points"].size() == of.points.size());
        double worst = 0, worst_held_out = 0;
        for (std::size_t i = 0; i < of.points.size(); ++i) {
            auto const& p = fit["points"][i];
            CHECK(p[0] == of.points[i].size);
            CHECK(p[2] == of.points[i].time);
            CHECK(p[5] <= p[3]);
            worst = std::max(worst, std::abs(p[3].get<double>() / p[2].get<double>() - 1));
            if (!p[4].is_null())
                worst_held_out = std::max(worst_held_out, std::abs(p[4].get<double>() / p[2].get<double>() - 1));
        }
        CHECK(worst == of.quality.in_sample.worst);
        CHECK(fit["heldOut"].is_null() == !of.quality.held_out);
        if (of.quality.held_out) CHECK(worst_held_out == of.quality.held_out->worst);
    };
    check(shown["fits"][0], report.collectives[0]);
    check(shown["fits"][1], report.operators[0]);
    check(shown["fits"][2], report.operators[1]);
    CHECK(shown["fits"][0]["errors"][2] > 0.01);
    CHECK(shown["fits"][0]["lines"][0][1] == report.collectives[0].model.pieces[0].slope.value);
}
