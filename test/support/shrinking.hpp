// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Properties of instances that a `random_source` draws, checked by RapidCheck: a failure shrinks to a small
/// instance.
#pragma once

#include <support/random_programs.hpp>

#include <rapidcheck.h>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

/// The numbers of which a `random_source` makes an instance. Fewer and smaller numbers make a smaller one.
struct drawn_numbers {
    std::vector<std::uint64_t> list;
};
inline void showValue(drawn_numbers const& n, std::ostream& out) { out << n.list.size() << " numbers"; }

/// Enough numbers for the instances of the oracle tests. They shrink by leaving out runs and by going towards zero.
inline rc::Gen<drawn_numbers> numbers_to_draw() {
    return [](rc::Random const& random, int) {
        constexpr std::size_t enough = 256;
        drawn_numbers n;
        rc::Random numbers = random;
        for (std::size_t k = 0; k < enough; ++k) n.list.push_back(numbers.next());
        return rc::shrinkable::shrinkRecur(std::move(n), [](drawn_numbers const& from) {
            auto const drawn = [](std::vector<std::uint64_t> list) { return drawn_numbers{std::move(list)}; };
            auto const less = [](std::uint64_t number) { return rc::shrink::towards(number, std::uint64_t{0}); };
            return rc::seq::map(
                rc::seq::concat(rc::shrink::removeChunks(from.list), rc::shrink::eachElement(from.list, less)), drawn);
        });
    };
}

/// Checks `property(random_source&)` on `cases` instances, the same every time, or on those that `RC_PARAMS` asks for.
/// The property says by `RC_ASSERT` what holds and by `RC_LOG` what its instance is. If it fails, RapidCheck prints the
/// smallest instance that it finds to fail, and what repeats it. Returns whether the property holds.
template <class Property>
[[nodiscard]] bool holds_when_drawn(std::string const& what, int cases, Property const& property) {
    rc::detail::TestParams params;
    params.seed = 1;
    params.maxSuccess = cases;
    if (std::getenv("RC_PARAMS") != nullptr) params = rc::detail::configuration().testParams;
    auto const result = rc::detail::checkTestable(
        [&] {
            random_source random((*numbers_to_draw()).list);
            property(random);
        },
        rc::detail::TestMetadata{what, what}, params);
    if (result.template is<rc::detail::SuccessResult>()) return true;
    std::cerr << what << " (seed " << params.seed << ")\n";
    rc::detail::printResultMessage(result, std::cerr);
    std::cerr << '\n';
    return false;
}

} // namespace heddle::test
