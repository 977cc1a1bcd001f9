import GRDB

/// The tables, as a list of migrations. A migration that was released is never changed.
///
/// - `stall` has one row for each report. `body` has the reports themselves, so that queries need not read past them.
/// - `fault_hour` and `fault_host` have sums of `stall`, by hour, and by day and host. They make queries over a month of millions
///   of stalls fast.
/// - `counted` has stalls without a report, as the run records count them. Those of a watcher are of the services that it watched.
/// - `watched_service` has the watched time of a run that watches other processes, by their services. Other runs have no row in it.
/// - `alert` has the alerts that are not finished, with the receivers that were told.
/// - `alias` maps a fault's earlier fingerprint to its current one. Rows keep the fingerprint with which they were written;
///   queries map it.
/// - `sequence` has the last value of `stall.place`. It grows with each stall that arrives or changes; no value is used twice.
/// - `usage` has each team's number of reports and records, and their compressed bytes.
/// - `seen` has when each service and release first and last had each fault, by its reports.
enum SQLiteSchema {
    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("1") { try $0.execute(sql: first) }
        migrator.registerMigration("2") { try $0.execute(sql: second) }
        migrator.registerMigration("3") { try $0.execute(sql: third) }
        // Nothing changes. Since then reports are compressed with Zstandard, which earlier collectors do not read.
        migrator.registerMigration("4") { _ in }
        // Rows are removed team by team, by other indexes: these cost a twelfth of the time of each report.
        migrator.registerMigration("5") {
            try $0.execute(sql: "DROP INDEX stall_age; DROP INDEX fault_hour_age; DROP INDEX fault_host_age")
        }
        migrator.registerMigration("6") { try $0.execute(sql: "DROP INDEX run_age") }
        migrator.registerMigration("7") { try $0.execute(sql: seventh) }
        migrator.registerMigration("8") { try $0.execute(sql: eighth) }
        return migrator
    }

    /// What was stored before stays with the run's own service, as in the seventh.
    private static let eighth = """
        CREATE TABLE watched_service (
            team TEXT NOT NULL, run TEXT NOT NULL, service TEXT NOT NULL, time INTEGER NOT NULL,
            PRIMARY KEY (team, run, service)
        ) WITHOUT ROWID;
        CREATE INDEX watched_service_name ON watched_service (team, service);
        """

    /// A run counts stalls of several services, if it watches other processes. What was stored before stays with the run's own service until
    /// the next record of the run.
    private static let seventh = """
        CREATE TABLE counted_by_service (
            team TEXT NOT NULL, run TEXT NOT NULL, fingerprint TEXT NOT NULL,
            service TEXT NOT NULL, release TEXT NOT NULL, host TEXT NOT NULL,
            count INTEGER NOT NULL, total INTEGER NOT NULL, longest INTEGER NOT NULL,
            first INTEGER NOT NULL, last INTEGER NOT NULL,
            PRIMARY KEY (team, run, fingerprint, service)
        ) WITHOUT ROWID;
        INSERT INTO counted_by_service (team, run, fingerprint, service, release, host, count, total, longest, first, last)
        SELECT team, run, fingerprint, service, release, host, count, total, longest, first, last FROM counted;
        DROP TABLE counted;
        ALTER TABLE counted_by_service RENAME TO counted;
        CREATE INDEX counted_first ON counted (team, first);
        """

    private static let third = """
        ALTER TABLE stall ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
        UPDATE stall SET place = number;
        CREATE INDEX stall_place ON stall (team, place);
        CREATE TABLE sequence (place INTEGER NOT NULL);
        INSERT INTO sequence SELECT coalesce(max(number), 0) FROM stall;

        CREATE TABLE usage (
            team TEXT PRIMARY KEY, bytes INTEGER NOT NULL, stalls INTEGER NOT NULL, runs INTEGER NOT NULL
        ) WITHOUT ROWID;
        INSERT INTO usage
        SELECT team, sum(bytes), sum(stalls), sum(runs) FROM (
            SELECT team, sum(length(report) + 512) AS bytes, count(*) AS stalls, 0 AS runs
            FROM stall JOIN body USING (number) GROUP BY team
            UNION ALL SELECT team, sum(length(body) + 512), 0, count(*) FROM run GROUP BY team
        ) GROUP BY team;

        CREATE INDEX run_host ON run (team, service, host, started);
        CREATE TABLE seen (
            team TEXT NOT NULL, service TEXT NOT NULL, fingerprint TEXT NOT NULL, release TEXT NOT NULL,
            first INTEGER NOT NULL, last INTEGER NOT NULL,
            PRIMARY KEY (team, service, fingerprint, release)
        ) WITHOUT ROWID;
        INSERT INTO seen
        SELECT team, service, fingerprint, release, min(first), max(last) FROM fault_hour GROUP BY team, service, fingerprint, release;
        """

    /// It is unknown whether runs that were stored before were still running, so they cause no alert.
    private static let second = """
        ALTER TABLE run ADD COLUMN running INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE alert (
            team TEXT NOT NULL, rule TEXT NOT NULL, subject TEXT NOT NULL, text TEXT NOT NULL,
            began INTEGER NOT NULL, ended INTEGER, told_begin TEXT NOT NULL, told_end TEXT NOT NULL,
            PRIMARY KEY (team, rule, subject)
        ) WITHOUT ROWID;
        """

    private static let first = """
        CREATE TABLE stall (
            number INTEGER PRIMARY KEY,
            team TEXT NOT NULL, id TEXT NOT NULL, version INTEGER NOT NULL,
            started INTEGER NOT NULL, last INTEGER NOT NULL, duration INTEGER NOT NULL,
            count INTEGER NOT NULL, total INTEGER NOT NULL, longest INTEGER NOT NULL,
            service TEXT NOT NULL, release TEXT NOT NULL, host TEXT NOT NULL, label TEXT NOT NULL,
            verdict TEXT NOT NULL, fingerprint TEXT NOT NULL, culprit TEXT NOT NULL
        );
        CREATE UNIQUE INDEX stall_id ON stall (team, id);
        CREATE INDEX stall_started ON stall (team, started);
        CREATE INDEX stall_fault ON stall (team, fingerprint, started);
        CREATE INDEX stall_host ON stall (team, host, started);
        CREATE INDEX stall_age ON stall (started);
        CREATE TABLE body (number INTEGER PRIMARY KEY, report BLOB NOT NULL);

        CREATE TABLE fault_hour (
            team TEXT NOT NULL, service TEXT NOT NULL, hour INTEGER NOT NULL, fingerprint TEXT NOT NULL,
            release TEXT NOT NULL, verdict TEXT NOT NULL,
            count INTEGER NOT NULL, reports INTEGER NOT NULL, total INTEGER NOT NULL, longest INTEGER NOT NULL,
            first INTEGER NOT NULL, last INTEGER NOT NULL,
            PRIMARY KEY (team, service, hour, fingerprint, release, verdict)
        ) WITHOUT ROWID;
        CREATE INDEX fault_hour_age ON fault_hour (hour);
        CREATE TABLE fault_host (
            team TEXT NOT NULL, fingerprint TEXT NOT NULL, day INTEGER NOT NULL, service TEXT NOT NULL,
            release TEXT NOT NULL, verdict TEXT NOT NULL, host TEXT NOT NULL, reports INTEGER NOT NULL,
            PRIMARY KEY (team, fingerprint, day, service, release, verdict, host)
        ) WITHOUT ROWID;
        CREATE INDEX fault_host_age ON fault_host (day);

        CREATE TABLE fault (
            team TEXT NOT NULL, fingerprint TEXT NOT NULL,
            latest TEXT NOT NULL, culprit TEXT NOT NULL, place TEXT NOT NULL,
            PRIMARY KEY (team, fingerprint)
        ) WITHOUT ROWID;
        CREATE TABLE alias (
            team TEXT NOT NULL, alias TEXT NOT NULL, fingerprint TEXT NOT NULL,
            PRIMARY KEY (team, alias)
        ) WITHOUT ROWID;
        CREATE INDEX alias_fault ON alias (team, fingerprint);

        CREATE TABLE run (
            team TEXT NOT NULL, id TEXT NOT NULL, updated INTEGER NOT NULL, started INTEGER NOT NULL,
            watched INTEGER NOT NULL, service TEXT NOT NULL, release TEXT NOT NULL, host TEXT NOT NULL,
            body BLOB NOT NULL,
            PRIMARY KEY (team, id)
        );
        CREATE INDEX run_updated ON run (team, updated);
        CREATE INDEX run_age ON run (updated);
        CREATE TABLE counted (
            team TEXT NOT NULL, run TEXT NOT NULL, fingerprint TEXT NOT NULL,
            service TEXT NOT NULL, release TEXT NOT NULL, host TEXT NOT NULL,
            count INTEGER NOT NULL, total INTEGER NOT NULL, longest INTEGER NOT NULL,
            first INTEGER NOT NULL, last INTEGER NOT NULL,
            PRIMARY KEY (team, run, fingerprint)
        ) WITHOUT ROWID;
        CREATE INDEX counted_first ON counted (team, first);
        """
}
