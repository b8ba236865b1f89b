// Three clients of a store that send what they like: a broken one loses its own connection and nothing else,
// and each gets as many replies as it made requests.
#include <array>

#include "lockstep/rendezvous/store_connection.h"
#include "lockstep/rendezvous/store_service.h"
#include "tests/fuzz/conversation.h"
#include "tests/fuzz/proof.h"

namespace lockstep::fuzz::store_requests {
namespace {

using store_wire::Operation;
using store_wire::Status;

constexpr int most_steps = 12;  // each is several system calls
constexpr StoreLimits limits{.key_bytes = 20, .value_bytes = 200, .total_bytes = 1000};

struct Client {
  explicit Client(std::shared_ptr<StoreBudget> traffic)
      : connection(side.take_socket(), trust(), destination(), std::move(traffic)) {}

  OtherSide side;
  StoreConnection connection;
  bool is_right = false;  // the first thing that it said is the right answer
  bool has_spoken = false;
};

/// Of the replies to a client: how many are last ones. Whatever it sent, what it hears are replies.
int count_last_replies(std::string_view heard) {
  int last = 0;
  while (heard.size() >= store_wire::header_bytes) {
    const auto header =
        store_wire::decode_header(std::as_bytes(std::span(heard)).first<store_wire::header_bytes>());
    require(header.kind <= static_cast<std::uint8_t>(Status::refused), "a reply has a known status");
    require(header.body_bytes <= std::max(limits.value_bytes, store_wire::refusal_bytes), "and is bounded");
    heard.remove_prefix(store_wire::header_bytes);
    if (heard.size() < header.body_bytes) break;
    heard.remove_prefix(header.body_bytes);
    const auto status = static_cast<Status>(header.kind);
    if (status != Status::present && status != Status::parked) ++last;
  }
  return last;
}

class Trial {
 public:
  void run(Script& script) {
    for (int i = 0; i < most_steps && !script.is_over(); ++i) step(script);
    for (auto& client : clients_) {
      if (client) drop(*client);
    }
    require(service_.waiting() == 0, "who is gone waits no longer");
    require(service_.budget()->used() <= limits.total_bytes, "the store holds no more than its limit");
  }

 private:
  using Place = std::unique_ptr<Client>;

  void step(Script& script) {
    const int kind = script.below(7);
    Place& client = clients_[static_cast<std::size_t>(script.below(3))];
    if (!client) client = std::make_unique<Client>(service_.traffic());
    if (kind == 0) say(*client, script.text(script.byte()));
    if (kind == 1 || kind == 3) prove(*client);
    if (kind == 3) serve(*client);
    if (!client) return;  // it was turned away
    if (kind == 2 || kind == 3 || kind == 4) say(*client, request_in(script));
    if (kind == 5) client->side.end();
    if (kind == 3 || kind == 4 || kind == 6) serve(*client);
  }

  static std::string request_in(Script& script) {
    const auto operation = static_cast<Operation>(1 + script.below(10));
    static constexpr std::array<int, 11> usual = {0, 2, 1, 1, 2, 3, 2, 1, 2, 1, 1};
    const int shape = script.byte();
    const int fields = shape < 250 ? usual[static_cast<std::size_t>(operation)] : shape - 250;
    std::vector<std::string> texts;
    for (int field = 0; field < fields; ++field) texts.push_back(field_in(script));
    if (operation == Operation::add && fields == 2) texts[1] = store_wire::encode_number(script.byte() - 100);
    return store_wire::encode_request(operation, std::vector<std::string_view>(texts.begin(), texts.end()));
  }
  static std::string field_in(Script& script) {
    switch (const int kind = script.below(6)) {
      case 4: return script.text(script.byte());
      case 5: return std::to_string(script.byte());
      default: return std::string(1, static_cast<char>('a' + kind));
    }
  }

  static void say(Client& client, const std::string& text) {
    client.has_spoken = client.has_spoken || !text.empty();
    (void)client.side.say(text);
  }
  void prove(Client& client) {
    if (client.has_spoken) return;
    client.has_spoken = true;
    RightClient right({});
    if (!client.side.say(right.opening())) return;
    serve(client);
    require(right.hear(client.side.hear()), "an opening is answered");
    client.is_right = client.side.say(right.confirmation());
  }

  // What StoreServer does when a descriptor is ready.
  void serve(Client& client) {
    try {
      const auto request = client.connection.advance();
      require(!client.connection.proven() || client.is_right, "only the secret lets in");
      if (request) ++requests_[index_of(client)];
      if (request) return settle(service_.answer(client.connection, *request));
    } catch (const Error& error) {
      const bool is_heard = error.code() == ErrorCode::corrupt_data && client.connection.proven();
      require(is_heard || error.code() == ErrorCode::peer_lost || error.code() == ErrorCode::invalid_argument,
              "a client is broken, gone, or a stranger");
      if (!is_heard) return drop(client);
      ++refusals_[index_of(client)];
      client.connection.refuse_and_close(error.what());
    }
    settle({client.connection.fd()});
  }

  void settle(const std::vector<int>& touched) {
    for (const int fd : touched) {
      for (Place& client : clients_) {
        if (!client || client->connection.fd() != fd) continue;
        client->connection.flush();
        if (client->connection.finished()) drop(*client);
      }
    }
  }

  void check_replies(Client& client) {
    if (!client.is_right || client.side.has_ended()) return;
    const std::string& heard = client.side.hear();
    constexpr std::size_t proof_bytes =
        sizeof(proof::Greeting) + sizeof(proof::Answer) + sizeof(proof::Verdict);
    if (heard.size() < proof_bytes) return;
    const std::size_t index = index_of(client);
    require(count_last_replies(std::string_view(heard).substr(proof_bytes)) <=
                requests_[index] + refusals_[index],
            "a request has one last reply");
  }

  void drop(Client& client) {
    check_replies(client);
    const std::size_t index = index_of(client);
    const auto touched = service_.forget(client.connection);
    clients_[index].reset();
    requests_[index] = refusals_[index] = 0;
    settle(touched);
  }

  std::size_t index_of(const Client& client) const {
    std::size_t index = 0;
    while (clients_[index].get() != &client) ++index;
    return index;
  }

  StoreService service_{limits};
  std::array<Place, 3> clients_;
  std::array<int, 3> requests_{};
  std::array<int, 3> refusals_{};
};

}  // namespace

int run_one(Input input) { return play<Trial>(input); }

}  // namespace lockstep::fuzz::store_requests
