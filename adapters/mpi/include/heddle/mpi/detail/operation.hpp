// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief Calls of MPI that end in time: what they return is checked, and no wait spins or is for ever.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/execute/communicator.hpp>
#include <heddle/execute/detail/operation.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

namespace heddle::mpi::detail {

/// Tells whether elements are of a type that MPI does not know, such as of 16 bits: it carries their bits, and adds and
/// compares them by their own operators.
template <class Scalar>
inline constexpr bool is_foreign = !std::is_same_v<Scalar, float> && !std::is_same_v<Scalar, double>;

template <class Scalar>
[[nodiscard]] MPI_Datatype datatype() {
    if constexpr (is_foreign<Scalar>) {
        static_assert(sizeof(Scalar) == sizeof(std::uint16_t) && std::is_trivially_copyable_v<Scalar>,
                      "Ranks exchange elements of type float, double or of one of 16 bits.");
        return MPI_UINT16_T;
    } else {
        return std::is_same_v<Scalar, float> ? MPI_FLOAT : MPI_DOUBLE;
    }
}

using heddle::detail::operation;

/// *Throws* `error` with MPI's own words if a call has failed.
inline void check(int code, operation const& what) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    int kind = MPI_ERR_OTHER;
    MPI_Error_class(code, &kind);
    throw error(what.text() + ": " + std::string(text.data(), static_cast<std::size_t>(length)) +
                (kind == MPI_ERR_TRUNCATE ? "; another rank has sent more elements, or does something else" : ""));
}

/// Returns MPI's operation of a reduction. MPI keeps one of foreign elements until the process ends.
template <class Scalar, reduction How>
[[nodiscard]] MPI_Op operation_of() {
    if constexpr (is_foreign<Scalar>) {
        static MPI_Op const made = [] {
            MPI_Op result = MPI_OP_NULL;
            auto* const combine = +[](void* from, void* into, int* length, MPI_Datatype*) {
                auto const* x = static_cast<Scalar const*>(from);
                auto* y = static_cast<Scalar*>(into);
                for (int n = 0; n < *length; ++n) y[n] = How == reduction::sum ? y[n] + x[n] : std::max(y[n], x[n]);
            };
            check(MPI_Op_create(combine, 1, &result), {.name = "making an operation"});
            return result;
        }();
        return made;
    } else {
        return How == reduction::sum ? MPI_SUM : MPI_MAX;
    }
}
template <class Scalar>
[[nodiscard]] MPI_Op operation_of(reduction how) {
    return how == reduction::sum ? operation_of<Scalar, reduction::sum>() : operation_of<Scalar, reduction::maximum>();
}

/// Returns a number of elements as MPI counts them. *Throws* `error` if it cannot.
[[nodiscard]] inline int count(std::size_t elements, operation const& what) {
    if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max()))
        throw error(what.text() + ": MPI counts up to " + std::to_string(std::numeric_limits<int>::max()) +
                    " elements");
    return static_cast<int>(elements);
}

/// Waits until `test(done)`, a call of MPI, sets its argument; see `heddle::detail::wait_in_time`.
template <class Test>
    requires std::is_invocable_r_v<int, Test&, int*>
void wait_in_time(seconds time_out, operation const& what, Test&& test) {
    heddle::detail::wait_in_time(time_out, what, [&] {
        int done = 0;
        check(test(&done), what);
        return done != 0;
    });
}

inline void wait_in_time(seconds time_out, operation const& what, MPI_Request& request,
                         MPI_Status* status = MPI_STATUS_IGNORE) {
    wait_in_time(time_out, what, [&](int* done) { return MPI_Test(&request, done, status); });
}

} // namespace heddle::mpi::detail
