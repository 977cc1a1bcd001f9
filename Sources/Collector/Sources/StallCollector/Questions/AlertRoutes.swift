import Hummingbird
import StallStore

/// Returns a team's current alerts: `GET /api/v1/alerts`.
struct AlertRoutes {
    let store: any StallStore

    private struct Answer: Encodable {
        var alerts: [AlertMessage.Entry]
    }

    func add(to router: some RouterMethods<CollectorContext>) {
        router.get("api/v1/alerts") { _, context in
            let team = try context.team(.read)
            let lasting = try await store.alerts().filter { $0.team == team && $0.endedAt == nil }
            return try JSONAnswer.make(Answer(alerts: lasting.map { AlertMessage.Entry($0, nil) }))
        }
    }
}
