import StallStore

/// The tables, as a list of steps. A step that was released is never changed.
///
/// - `stall` has one row for each version of a report. `body` has the reports themselves, so that queries need not read past
///   them. Versions of a stall are adjacent; `FINAL` selects the greatest one.
/// - `run` has the run records, with the stalls that have no report (`counted`). If the run watches other processes, `counted_service` has
///   the service of each of these, whose release is not known; otherwise it is empty, and they are of the run's own service and release.
///   In the same way `watched_service` and `watched_time` have its watched time by service.
/// - `touch`, `done`, `sum` and `sum_host` are the sums by hour: see ``HourStates``.
/// - `fault` has the culprit of a fault's latest stall, `feed` the order in which stalls arrived and changed. Views fill both; a duplicate
///   row does no harm.
/// - `alias` has fingerprints that belong to the same fault, `alert` the alerts, `horizon` the time before which stalls are not
///   shown.
///
/// Moments are nanoseconds since 1970. `day` and `hour` are counted since 1970 in UTC, so the servers' time zones do not matter.
/// Everything works in 18.16 and in current versions.
struct ClickHouseSchema {
    let database: String
    let cluster: String?

    init(_ address: ClickHouseAddress) { (database, cluster) = (address.database, address.cluster) }

    /// The tables from which rows are removed by age: each day, or day of arrival, is a partition.
    static let aged = ["stall", "body", "run", "touch", "done", "sum", "sum_host", "fault", "feed"]

    var createDatabase: String { "CREATE DATABASE IF NOT EXISTS \(database)\(onCluster)" }

    /// Each step may be executed twice: it does no harm that a table or a column exists already.
    ///
    /// The second one changes no table. Since then reports are compressed with Zstandard, which earlier collectors do not read. Rows of earlier
    /// collectors have an empty `counted_service`, and an empty `watched_service`.
    var steps: [[String]] {
        [
            first, [], column("counted_service Array(String)", of: "run"),
            column("watched_service Array(String)", of: "run") + column("watched_time Array(Int64)", of: "run"),
        ]
    }

    /// The name of the table on one server. On a cluster, the name without the suffix is the table that is distributed over all
    /// shards.
    func local(_ table: String) -> String { "\(database).\(table)\(cluster == nil ? "" : "_local")" }

    private var onCluster: String { cluster.map { " ON CLUSTER \($0)" } ?? "" }

    private var first: [String] {
        stalls + sums
            + table(
                "run",
                """
                team String, day UInt32, id String, updated UInt64, started Int64, watched Int64, service String, release String,
                host String, running UInt8, body String,
                counted Nested(fingerprint String, count Int64, total Int64, longest Int64, first Int64, last Int64)
                """,
                "ReplacingMergeTree",
                version: "updated",
                partition: "day",
                order: "team, id",
                shard: "team, id"
            )
            + table(
                "alias",
                "team String, alias String, fingerprint String, rank UInt64",
                "ReplacingMergeTree",
                version: "rank",
                order: "team, alias, fingerprint",
                shard: "team"
            )
            + table(
                "alert",
                """
                team String, rule String, subject String, version UInt64, removed UInt8, text String, began Int64, ended Int64,
                told_begin String, told_end String
                """,
                // All rows are in one shard, so that a block is stored completely or not at all.
                "ReplacingMergeTree",
                version: "version",
                order: "team, rule, subject"
            )
            + table("horizon", "name String, before UInt64", "ReplacingMergeTree", version: "before", order: "name")
            + table("migration", "number UInt64", "ReplacingMergeTree", version: "number", order: "number")
    }

    private var stalls: [String] {
        table(
            "stall",
            """
            team String, day UInt32, hour UInt32, id String, version UInt64, arrived UInt64, started Int64, last Int64, duration Int64,
            count Int64, total Int64, longest Int64, service String, release String, host String, label String, verdict String,
            fingerprint String, culprit String, place String
            """,
            "ReplacingMergeTree",
            version: "version",
            partition: "day",
            order: "team, hour, id",
            shard: "team, id"
        )
            + table(
                "body",
                "team String, day UInt32, id String, version UInt64, report String",
                "ReplacingMergeTree",
                version: "version",
                partition: "day",
                order: "team, id",
                shard: "team, id"
            )
            + table(
                "fault",
                """
                team String, day UInt32, fingerprint String, latest AggregateFunction(max, String),
                culprit AggregateFunction(argMax, String, String), place AggregateFunction(argMax, String, String)
                """,
                "AggregatingMergeTree",
                partition: "day",
                order: "team, fingerprint",
                shard: "team, fingerprint"
            )
            + view(
                "fault",
                """
                SELECT team, day, fingerprint, maxState(id) AS latest, argMaxState(culprit, id) AS culprit, argMaxState(place, id) AS place
                FROM \(local("stall")) GROUP BY team, day, fingerprint
                """
            )
            + table(
                "feed",
                "team String, day UInt32, arrived UInt64, hour UInt32, id String",
                "ReplacingMergeTree",
                partition: "day",
                order: "team, arrived, id",
                shard: "team, id"
            )
            + view(
                "feed",
                "SELECT team, toUInt32(intDiv(arrived, 86400000000)) AS day, arrived, hour, id FROM \(local("stall"))"
            )
    }

    private var sums: [String] {
        let columns = """
            team String, day UInt32, hour UInt32, generation UInt64, fingerprint String, service String, release String, verdict String,
            count Int64, reports Int64, total Int64, longest Int64, first Int64, last Int64
            """
        return table(
            "touch",
            "team String, day UInt32, hour UInt32, token String",
            "ReplacingMergeTree",
            partition: "day",
            order: "team, hour, token",
            shard: "team"
        )
            + table(
                "done",
                "team String, day UInt32, hour UInt32, touches UInt64, generation UInt64",
                "ReplacingMergeTree",
                partition: "day",
                order: "team, hour, touches, generation",
                shard: "team"
            )
            + table(
                "sum",
                columns,
                "MergeTree",
                partition: "day",
                order: "team, hour, fingerprint",
                shard: "team, fingerprint"
            )
            + table(
                "sum_host",
                columns + ", host String",
                "MergeTree",
                partition: "day",
                order: "team, fingerprint, hour",
                shard: "team, fingerprint"
            )
    }

    /// - Parameter shard: The columns that determine a row's shard. Nil: all rows are in one shard.
    private func table(
        _ name: String,
        _ columns: String,
        _ engine: String,
        version: String? = nil,
        partition: String? = nil,
        order: String,
        shard: String? = nil
    ) -> [String] {
        let parted = partition.map { " PARTITION BY \($0)" } ?? ""
        func create(_ engine: String) -> String {
            "CREATE TABLE IF NOT EXISTS \(local(name))\(onCluster) (\(columns)) ENGINE = \(engine)\(parted) ORDER BY (\(order))"
        }
        guard let cluster else { return [create("\(engine)(\(version ?? ""))")] }
        let path = "'/clickhouse/tables/{shard}/\(database)/\(name)', '{replica}'"
        let key = shard.map { "cityHash64(\($0))" } ?? "0"
        return [
            create("Replicated\(engine)(\(path)\(version.map { ", \($0)" } ?? ""))"),
            """
            CREATE TABLE IF NOT EXISTS \(database).\(name)\(onCluster) (\(columns))
            ENGINE = Distributed(\(cluster), \(database), \(name)_local, \(key))
            """,
        ]
    }

    private func column(_ column: String, of table: String) -> [String] {
        let tables = cluster == nil ? [local(table)] : [local(table), "\(database).\(table)"]
        return tables.map { "ALTER TABLE \($0)\(onCluster) ADD COLUMN IF NOT EXISTS \(column)" }
    }

    private func view(_ name: String, _ select: String) -> [String] {
        ["CREATE MATERIALIZED VIEW IF NOT EXISTS \(database).\(name)_view\(onCluster) TO \(local(name)) AS \(select)"]
    }
}
