// SPDX-License-Identifier: BSL-1.0
/// @file
/// @brief A store that one rank keeps and the others reach over TCP.
#pragma once

#include <heddle/base/error.hpp>
#include <heddle/base/quantity.hpp>
#include <heddle/execute/detail/operation.hpp>
#include <heddle/nccl/store.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace heddle::nccl {

namespace detail {

/// A connected or listening socket.
class socket {
public:
    socket() = default;
    explicit socket(int descriptor) : descriptor_(descriptor) {}
    socket(socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    socket& operator=(socket&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    ~socket() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    [[nodiscard]] int get() const { return descriptor_; }
    explicit operator bool() const { return descriptor_ >= 0; }

    /// Sends texts, each with its length before it, in one piece; returns whether it could.
    template <std::same_as<std::string>... Text>
    [[nodiscard]] bool write(Text const&... texts) const {
        std::string all;
        auto const add = [&](std::string const& text) {
            for (unsigned shift = 0; shift < 32; shift += 8)
                all += static_cast<char>(static_cast<std::uint32_t>(text.size()) >> shift & 0xFFU);
            all += text;
        };
        (add(texts), ...);
        for (std::size_t sent = 0; sent < all.size();) {
            auto const n = ::send(descriptor_, all.data() + sent, all.size() - sent, MSG_NOSIGNAL);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            sent += static_cast<std::size_t>(n);
        }
        return true;
    }
    /// Receives a text; returns nothing if the other has gone.
    [[nodiscard]] std::optional<std::string> read() const {
        constexpr std::uint32_t most = 1U << 20; // what is longer is none of ours
        std::array<char, 4> bytes{};
        if (!read(bytes.data(), 4)) return std::nullopt;
        std::uint32_t size = 0;
        for (std::size_t n = 0; n < 4; ++n) size |= std::uint32_t{static_cast<unsigned char>(bytes[n])} << (8 * n);
        if (size > most) return std::nullopt;
        std::string text(size, '\0');
        if (!read(text.data(), size)) return std::nullopt;
        return text;
    }

private:
    [[nodiscard]] bool read(char* data, std::size_t size) const {
        while (size > 0) {
            auto const n = ::recv(descriptor_, data, size, 0);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            data += n;
            size -= static_cast<std::size_t>(n);
        }
        return true;
    }

    int descriptor_ = -1;
};

/// Keeps the values in a thread, which ends once as many as are expected have come, and all have gone; or at once if an
/// exception is on its way.
class tcp_server {
public:
    /// Port 0 takes one that is free.
    tcp_server(std::uint16_t port, seconds time_out, std::size_t expected)
        : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), time_out_(time_out), expected_(expected) {
        int const yes = 1;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_ANY);
        socklen_t size = sizeof address;
        auto* const at = reinterpret_cast<sockaddr*>(&address);
        if (!listening_ || ::setsockopt(listening_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
            ::bind(listening_.get(), at, size) != 0 || ::listen(listening_.get(), 128) != 0 ||
            ::getsockname(listening_.get(), at, &size) != 0)
            throw error("cannot serve port " + std::to_string(port) + ": " + std::strerror(errno));
        port_ = ntohs(address.sin_port);
        thread_ = std::thread([this] { serve(); });
    }
    tcp_server(tcp_server const&) = delete;
    ~tcp_server() {
        if (std::uncaught_exceptions() > uncaught_) time_out_ = seconds(0);
        until_ = std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                                        std::chrono::duration<double>(time_out_.value));
        stopping_ = true;
        thread_.join();
    }
    [[nodiscard]] std::uint16_t port() const { return port_; }

private:
    void serve() {
        std::vector<socket> clients;
        std::map<std::string, std::string> values;
        for (std::size_t came = 0;;) {
            bool const stops = stopping_; // who has come by now can be seen below
            if (stops && std::chrono::steady_clock::now() >= until_) return;
            bool const is_alone = clients.empty() && came >= expected_;
            std::vector<pollfd> watched{{listening_.get(), POLLIN, 0}};
            for (auto const& c : clients) watched.push_back({c.get(), POLLIN, 0});
            constexpr int nap_in_ms = 20;
            int const seen = ::poll(watched.data(), watched.size(), nap_in_ms);
            if (seen == 0 && stops && is_alone) return;
            if (seen <= 0) continue;
            for (std::size_t n = clients.size(); n-- > 0;)
                if (watched[n + 1].revents != 0 && !answer(clients[n], values))
                    clients.erase(clients.begin() + static_cast<std::ptrdiff_t>(n));
            if (watched[0].revents != 0)
                if (socket client(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)); client) {
                    clients.push_back(std::move(client));
                    ++came;
                }
        }
    }
    /// A request is a key, and '=' and a value if it is set; the answer is '=' and the value, or nothing.
    [[nodiscard]] static bool answer(socket const& client, std::map<std::string, std::string>& values) {
        auto const key = client.read();
        auto const value = key ? client.read() : std::nullopt;
        if (!value) return false;
        if (!value->empty()) values.insert_or_assign(*key, *value);
        auto const found = values.find(*key);
        return client.write(found == values.end() ? std::string() : found->second);
    }

    socket listening_;
    std::uint16_t port_ = 0;
    seconds time_out_;
    std::size_t expected_;
    int uncaught_ = std::uncaught_exceptions();
    std::atomic<bool> stopping_ = false;
    std::chrono::steady_clock::time_point until_;
    std::thread thread_;
};

} // namespace detail

/// Values that one rank keeps for all, in a thread of its own.
///
/// The rank that keeps them waits in its destructor, no longer than the time-out, until the others have come and are
/// done with theirs.
class tcp_store : public store {
public:
    /// Keeps the values, for this rank and others, of whom at least `ranks` in all come. Port 0 takes one that is free.
    explicit tcp_store(std::uint16_t port, seconds time_out = seconds(300), std::size_t ranks = 1)
        : server_(std::make_unique<detail::tcp_server>(port, time_out, ranks)) {
        connect("localhost", server_->port(), time_out);
    }
    /// Reaches the rank that keeps the values. *Throws* `error` if it is not there in time.
    tcp_store(std::string const& host, std::uint16_t port, seconds time_out = seconds(300)) {
        connect(host, port, time_out);
    }
    ~tcp_store() override { to_server_ = detail::socket(); }

    /// Returns the port of the values that this rank keeps.
    [[nodiscard]] std::uint16_t port() const { return server_->port(); }

    void set(std::string const& key, std::string const& value) override { (void)ask(key, '=' + value); }
    [[nodiscard]] std::optional<std::string> find(std::string const& key) override {
        auto const answer = ask(key, "");
        return answer.empty() ? std::nullopt : std::optional(answer.substr(1));
    }

private:
    [[nodiscard]] std::string ask(std::string const& key, std::string const& value) const {
        auto answer = to_server_.write(key, value) ? to_server_.read() : std::nullopt;
        if (!answer) throw error("the rank that keeps the store is gone, asked for '" + key + "'");
        return std::move(*answer);
    }
    void connect(std::string const& host, std::uint16_t port, seconds time_out) {
        std::string const where = host + " port " + std::to_string(port), name = "reaching the store at " + where;
        heddle::detail::wait_in_time(time_out, {.name = name}, [&] {
            addrinfo hints{};
            hints.ai_family = AF_INET;
            hints.ai_socktype = SOCK_STREAM;
            addrinfo* found = nullptr;
            if (int const code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); code != 0)
                throw error(name + ": " + ::gai_strerror(code));
            std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> const all(found, &::freeaddrinfo);
            for (auto const* a = found; a && !to_server_; a = a->ai_next)
                if (detail::socket s(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
                    s && ::connect(s.get(), a->ai_addr, a->ai_addrlen) == 0)
                    to_server_ = std::move(s);
            return static_cast<bool>(to_server_);
        });
    }

    std::unique_ptr<detail::tcp_server> server_;
    detail::socket to_server_;
};

} // namespace heddle::nccl
