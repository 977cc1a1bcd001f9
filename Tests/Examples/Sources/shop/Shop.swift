import Foundation
import GRDB
import Hummingbird
import Logging
import ServiceLifecycle
import StallMonitorLoops
import StallMonitorService

/// A shop on Hummingbird with SQLite. `GET /orders/7` answers at once. `GET /turnover`, `POST /catalogue`, and `POST /orders/7` while another
/// process writes into the database, stall the main actor.
@main struct Shop {
    static func main() async throws {
        let logger = Logger(label: "shop")
        let orders = try Orders(path: "shop.sqlite")
        let router = Router()
        router.get("orders/:id") { _, context in
            try await orders.total(of: context.parameters.require("id", as: Int64.self))
        }
        router.post("orders/:id") { _, context in
            try await orders.add(context.parameters.require("id", as: Int64.self))
        }
        router.get("turnover") { _, _ in try await orders.turnover() }
        router.post("catalogue") { _, _ in
            Task { await orders.rebuildCatalogue() }
            return "begun\n"
        }

        let stalls = StallMonitorService(watching: .everyLoop, logger: logger)
        let port = ProcessInfo.processInfo.environment["PORT"].flatMap(Int.init) ?? 8080
        let application = Application(
            router: router,
            configuration: .init(address: .hostname("127.0.0.1", port: port)),
            services: [stalls, Journal(logger: logger)],
            logger: logger
        )
        try await application.runService()
        logger.info("ended")
    }
}

/// On the main actor, as an app's model would be: here is the mistake. Every query runs there, and everything else waits meanwhile.
@MainActor final class Orders {
    private let database: DatabaseQueue

    init(path: String) throws {
        var configuration = GRDB.Configuration()
        configuration.busyMode = .timeout(2)
        database = try DatabaseQueue(path: path, configuration: configuration)
        try database.write { database in
            try database.execute(
                sql: "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)"
            )
        }
    }

    /// Quick: one row by its key.
    func total(of id: Int64) throws -> String {
        let cents = try database.read {
            try Int.fetchOne($0, sql: "SELECT cents FROM orders WHERE id = ?", arguments: [id])
        }
        return "\(cents ?? 0)\n"
    }

    /// Stalls while another process has a transaction open on the file.
    func add(_ id: Int64) throws -> String {
        try database.write { database in
            try database.execute(sql: "INSERT OR REPLACE INTO orders VALUES (?, ?)", arguments: [id, id * 100])
        }
        return "added\n"
    }

    /// Stalls: it adds up millions of rows.
    func turnover() throws -> String {
        let days = "WITH RECURSIVE day(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM day WHERE n < 8000000)"
        let sum = try database.read { try Int.fetchOne($0, sql: "\(days) SELECT sum(n % 97) FROM day") }
        return "\(sum ?? 0)\n"
    }

    /// Stalls for eight seconds, also while the server ends: no request waits for it.
    func rebuildCatalogue() {
        let end = ContinuousClock.now + .seconds(8)
        var words: [String: Int] = [:]
        while ContinuousClock.now < end { words["\(words.count % 1_000)", default: 0] += 1 }
    }
}

/// A service of the shop's own. It ends after the server and before the monitor.
struct Journal: Service {
    let logger: Logger

    func run() async throws {
        logger.info("journal opened")
        try? await gracefulShutdown()
        logger.info("journal closed")
    }
}
