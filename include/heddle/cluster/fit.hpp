// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Fits models of collectives and operators to measurements, and says how far to believe them.
#pragma once

#include <heddle/base/definitions.hpp>
#include <heddle/cluster/fit_collective.hpp>
#include <heddle/cluster/fit_operator.hpp>
#include <heddle/cluster/fitted.hpp>
#include <heddle/cluster/sample.hpp>

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// Magnitudes of relative errors, |predicted / measured - 1|.
struct error_summary {
    double median = 0, ninth_decile = 0, percentile_95 = 0, worst = 0;
};

/// How well a model fits. Errors are at the measured sizes; the time of a size is the median of its measurements.
struct fit_quality {
    std::size_t samples = 0, sizes = 0;
    error_summary in_sample;
    /// Errors of models that are fitted without the size that they predict, the choice of pieces included; absent if
    /// there are fewer than three sizes.
    std::optional<error_summary> held_out;
    /// The seconds that the model predicts of each size, and those of models that are fitted without it, if there are.
    std::vector<double> times, held_out_times;
    std::vector<std::string> warnings;
};

struct collective_fit {
    collective kind = collective::all_reduce;
    int ranks = 1;
    /// Whether each rank is of another machine.
    bool is_across = false;
    std::vector<timed_transfer> points{};
    collective_model model{};
    fit_quality quality{};
};

/// The speed of an operator class or, if it says of which, of one kind of operator of that class in one pass.
struct operator_fit {
    std::string device;
    element_type type = element_type::float32;
    operator_class category = operator_class::other;
    std::optional<operator_pass> of{};
    std::vector<timed_kernel> points;
    class_speed speed;
    fit_quality quality;
};

struct fit_report {
    std::vector<collective_fit> collectives;
    std::vector<operator_fit> operators;
};

/// *Precondition:* there is an error.
[[nodiscard]] error_summary summarise(std::vector<double> errors);

/// Fits a model to each collective on each number of ranks or machines, and to each operator class of each element type
/// and device type and, where samples tell it, each kind of operator in each pass. Small kernels beside an operator's own
/// are taken out of its times, as fast as element-wise ones are fitted to be. Repeated measurements of a size count once,
/// with their median. Errors are relative to the measured time, so that a slow outlier has bounded weight: one that is
/// k times too slow pulls like one that is off by (1 - 1/k) / k, which is at most a quarter.
/// *Throws* `input_error` if a sample is invalid.
[[nodiscard]] fit_report fit_samples(std::span<sample const> samples);

/// Returns the numbers of ranks that collectives were measured on, ascending, but for those along lines of machines.
[[nodiscard]] std::set<int> rank_counts(fit_report const& report);

/// Returns the models of a report, with the collectives on `ranks` ranks and, as those inside a machine, on
/// `ranks_inside`, alone; and those along the longest line of machines. An operator class without rate and bandwidth is
/// left out. Ranks that gather each send what they have round a ring, at once: so much of the link between the first two,
/// and of that between machines, is known.
[[nodiscard]] fitted_models models_of(fit_report const& report, int ranks, int ranks_inside = 0);

} // namespace heddle

#if HEDDLE_DEFINITIONS

#include <heddle/base/algorithm.hpp>
#include <heddle/base/error.hpp>
#include <heddle/cluster/detail/relative_fit.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

namespace heddle {

HEDDLE_INLINE error_summary summarise(std::vector<double> errors) {
    algorithm::sort(errors);
    auto const quantile = [&](double part) {
        return errors[static_cast<std::size_t>(std::ceil(part * static_cast<double>(errors.size()))) - 1];
    };
    return {quantile(0.5), quantile(0.9), quantile(0.95), errors.back()};
}

namespace detail {

HEDDLE_INLINE void check(sample const& s, std::size_t number) {
    auto const fail = [&](char const* column, char const* expected) {
        throw input_error("sample " + std::to_string(number) + ", " + column, std::string("expected ") + expected);
    };
    auto const non_negative = [](double x) { return std::isfinite(x) && x >= 0; };
    if (!std::isfinite(s.time.value) || s.time.value <= 0) fail("seconds", "a positive number");
    if (!non_negative(s.size.value)) fail("bytes", "a number that is not negative");
    if (!non_negative(s.work.value)) fail("flops", "a number that is not negative");
    if (std::holds_alternative<collective>(s.what)) {
        if (s.ranks < (s.is_across ? 2 : 1)) fail("ranks", s.is_across ? "at least 2 machines" : "at least 1");
    } else {
        if (s.device.empty()) fail("device", "the name of a device type");
        if (!s.type) fail("dtype", "an element type");
        if (!non_negative(s.beside.value)) fail("bytes_beside", "a number that is not negative");
        if (s.kernels_beside < 0) fail("kernels_beside", "a number that is not negative");
    }
}

HEDDLE_INLINE double median(std::vector<double> values) {
    algorithm::sort(values);
    auto const half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

/// `fit` makes a model that has `time(point)`.
template <class Point, class Fit>
fit_quality judge(std::vector<Point> const& points, std::size_t samples, Fit const& fit) {
    fit_quality result;
    result.samples = samples;
    result.sizes = points.size();
    auto const model = fit(points);
    for (auto const& p : points) result.times.push_back(model.time(p));
    auto const errors = errors_of(result.times, points);
    result.in_sample = summarise(errors);
    if (points.size() >= 3) {
        result.held_out_times = held_out_times(points, fit);
        result.held_out = summarise(errors_of(result.held_out_times, points));
    }
    if (points.size() == 1) result.warnings.emplace_back("one size: all of its time is taken to grow with size");
    if (points.size() == 2) result.warnings.emplace_back("two sizes: nothing is left to judge the fit by");
    constexpr double far = 0.5;
    auto const misfits = algorithm::count_if(errors, [](double e) { return e > far; });
    if (misfits > 0)
        result.warnings.push_back("off by more than 50 % at " + std::to_string(misfits) + " of " +
                                  std::to_string(points.size()) + " sizes");
    else if (result.held_out && result.held_out->worst > far)
        result.warnings.push_back("off by up to " + std::to_string(std::lround(100 * result.held_out->worst)) +
                                  " % at sizes held out: measure more of them");
    return result;
}

HEDDLE_INLINE collective_fit fit_one(collective kind, int ranks, bool is_across,
                                     std::map<double, std::vector<double>> const& times) {
    collective_fit result{kind, ranks, is_across};
    std::size_t samples = 0;
    for (auto const& [size, measured] : times) {
        result.points.push_back({size, median(measured)});
        samples += measured.size();
    }
    result.model = fit_collective(result.points);
    result.quality = judge(result.points, samples, fit_lines);
    return result;
}

using times_of_sizes = std::map<std::pair<double, double>, std::vector<double>>;

HEDDLE_INLINE operator_fit fit_one(std::string device, element_type type, operator_class category,
                                   std::optional<operator_pass> of, times_of_sizes const& times) {
    operator_fit result{std::move(device), type, category, std::move(of), {}, {}, {}};
    std::size_t samples = 0;
    for (auto const& [key, measured] : times) {
        result.points.push_back({key.first, key.second, median(measured)});
        samples += measured.size();
    }
    algorithm::sort(result.points, {}, [](timed_kernel const& p) { return std::tuple(p.intensity(), p.work, p.size); });
    result.speed = fit_operator(result.points, category);
    result.quality = judge(result.points, samples, [&](auto const& points) { return fit_roofline(points, category); });
    if (!result.of && !result.speed.rate && !result.speed.bandwidth)
        result.quality.warnings.emplace_back(
            "the time does not grow with size: there is neither rate nor bandwidth, and it is not written");
    return result;
}

/// Returns the kernels that take longer or shorter than their speed says, in order.
HEDDLE_INLINE std::vector<measured_kernel> measured_kernels(std::vector<timed_kernel> const& points,
                                                            class_speed const& speed) {
    constexpr double near = 0.01;
    std::vector<measured_kernel> result;
    roofline_fit const fitted{speed.overhead.value_or(seconds(0)).value, speed.rate ? 1 / speed.rate->value : 0,
                              speed.bandwidth ? 1 / speed.bandwidth->value : 0};
    for (auto const& p : points) {
        double const time = fitted.time(p);
        if (time > 0 && std::abs(p.time / time - 1) > near)
            result.push_back({flops(p.work), bytes(p.size), p.time / time});
    }
    algorithm::sort(result, {}, [](measured_kernel const& m) { return std::pair(m.work, m.size); });
    return result;
}

/// The samples of operators on one type of device with elements of one type.
class operator_samples {
public:
    void add(sample const& s) { samples_.push_back(&s); }

    void fit(std::string const& device, element_type type, std::vector<operator_fit>& fits) const {
        std::map<operator_class, times_of_sizes> alone, by_class;
        std::map<std::pair<operator_class, operator_pass>, times_of_sizes> by_operator;
        auto const put = [](times_of_sizes& into, sample const& s, double time) {
            into[{s.work.value, s.size.value}].push_back(time);
        };
        for (auto const* s : samples_)
            if (s->kernels_beside == 0) put(alone[category_of(*s)], *s, s->time.value);
        class_speed small; // what kernels beside others are as fast as
        if (auto const found = alone.find(operator_class::elementwise); found != alone.end())
            small = fit_one(device, type, found->first, {}, found->second).speed;
        for (auto const* s : samples_) {
            double const time = s->time.value - std::min(time_beside(*s, small), most_beside * s->time.value);
            put(by_class[category_of(*s)], *s, time);
            if (s->of) put(by_operator[{category_of(*s), *s->of}], *s, time);
        }
        for (auto const& [category, times] : by_class) fits.push_back(fit_one(device, type, category, {}, times));
        for (auto const& [name, times] : by_operator)
            fits.push_back(fit_one(device, type, name.first, name.second, times));
    }

private:
    static constexpr double most_beside = 0.9;

    static operator_class category_of(sample const& s) { return std::get<operator_class>(s.what); }
    static double time_beside(sample const& s, class_speed const& small) {
        double const moving = small.bandwidth ? (s.beside / *small.bandwidth).value : 0;
        return moving + s.kernels_beside * small.overhead.value_or(seconds(0)).value;
    }

    std::vector<sample const*> samples_;
};

} // namespace detail

HEDDLE_INLINE fit_report fit_samples(std::span<sample const> samples) {
    std::map<std::tuple<collective, bool, int>, std::map<double, std::vector<double>>> collectives;
    std::map<std::pair<std::string, element_type>, detail::operator_samples> operators;
    for (std::size_t i = 0; i < samples.size(); ++i) {
        sample const& s = samples[i];
        detail::check(s, i);
        if (std::holds_alternative<operator_class>(s.what)) operators[{s.device, *s.type}].add(s);
        else collectives[{std::get<collective>(s.what), s.is_across, s.ranks}][s.size.value].push_back(s.time.value);
    }
    fit_report report;
    for (auto const& [key, times] : collectives) {
        auto const [kind, is_across, ranks] = key;
        report.collectives.push_back(detail::fit_one(kind, ranks, is_across, times));
    }
    for (auto const& [key, of_device] : operators) of_device.fit(key.first, key.second, report.operators);
    return report;
}

HEDDLE_INLINE std::set<int> rank_counts(fit_report const& report) {
    std::set<int> result;
    for (auto const& c : report.collectives)
        if (!c.is_across) result.insert(c.ranks);
    return result;
}

HEDDLE_INLINE fitted_models models_of(fit_report const& report, int ranks, int ranks_inside) {
    fitted_models result;
    result.ranks = ranks;
    result.inside.devices = ranks_inside;
    for (auto const& c : report.collectives)
        if (c.is_across) result.across.devices = std::max(result.across.devices, c.ranks);
    for (auto const& c : report.collectives) {
        if (!c.is_across && c.ranks == ranks) result.collectives[c.kind] = c.model;
        if (!c.is_across && c.ranks == ranks_inside) result.inside.models[c.kind] = c.model;
        if (c.is_across && c.ranks == result.across.devices) result.across.models[c.kind] = c.model;
    }
    for (auto const& c : report.collectives) {
        if (c.kind != collective::all_gather || c.ranks != (c.is_across ? result.across.devices : 2)) continue;
        auto const& [latency, slope] = c.model.line_at(bytes(c.points.back().size));
        double const hops = c.ranks - 1;
        if (slope.value <= 0 || hops < 1) continue;
        auto& link = c.is_across ? result.link_across : result.link;
        link = {bytes_per_second(hops / c.ranks / slope.value), std::max(latency * (1 / hops), seconds(0))};
    }
    for (auto const& o : report.operators) {
        auto& speeds = result.speeds[o.device][o.type];
        if (o.of) {
            auto& speed = speeds.by_operator[*o.of] = o.speed;
            speed.measured = detail::measured_kernels(o.points, speed);
        } else if (o.speed.rate || o.speed.bandwidth) speeds.by_class[o.category] = o.speed;
    }
    return result;
}

} // namespace heddle

#endif
