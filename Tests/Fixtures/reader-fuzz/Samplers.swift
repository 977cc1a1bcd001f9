import Foundation
import StallReports

/// The samplers that make the documents.
struct Samplers {
    let report: SchemaSampler
    let run: SchemaSampler
    /// What `top --format json` writes: it has no schema, so it is described here.
    let snapshot: SchemaSampler

    init(_ directory: String) throws {
        let schema = { (name: String) throws -> [String: Any] in
            let data = try Data(contentsOf: URL(filePath: "\(directory)/\(name).schema.json"))
            return try JSONSerialization.jsonObject(with: data) as? [String: Any] ?? [:]
        }
        var reports = try schema("stall-report")
        report = try SchemaSampler(schema: reports)
        run = try SchemaSampler(schema: schema("stall-run"))
        reports["live"] = try JSONSerialization.jsonObject(with: Data(Self.live.utf8))
        snapshot = try SchemaSampler(schema: reports, at: "#/live")
    }

    private static let live = """
        {"type": "object", "required": ["schema", "at", "processes"], "properties": {
          "schema": {"const": "stall-live/1"}, "at": {"$ref": "#/$defs/time"},
          "processes": {"type": "array", "maxItems": 6, "items": {
            "type": "object", "required": ["state", "record", "stalls"], "properties": {
              "state": {"enum": ["stalled", "watching", "dead", "unknown"]},
              "end": {"$ref": "#/$defs/process_end"},
              "record": {"$ref": "#/live/record"},
              "stalls": {"type": "array", "items": {"type": "object", "required": ["live"], "properties": {
                "live": {"$ref": "#/live/stall"}, "severity": {"type": "string"}, "verdict": {"type": "string"},
                "culprit": {"type": "string"}}}}}}}},
         "record": {"type": "object", "required": ["run", "writer", "status", "stalls", "torn_stalls"], "properties": {
            "run": {"$ref": "#/$defs/ulid"},
            "writer": {"type": "object", "required": ["host", "process", "started_at", "monitor_version", "locked"],
              "properties": {"host": {"$ref": "#/$defs/host"}, "service": {"$ref": "#/$defs/service"},
                "process": {"$ref": "#/$defs/process"}, "started_at": {"$ref": "#/$defs/time"},
                "monitor_version": {"type": "string"}, "locked": {"type": "boolean"}}},
            "status": {"type": "object",
              "required": ["updated_at", "last_look_monotonic_ns", "watched", "unplaced", "waiting_reports"],
              "properties": {"updated_at": {"$ref": "#/$defs/time"}, "last_look_monotonic_ns": {"$ref": "#/$defs/ns"},
                "watched": {"type": "integer", "minimum": 0}, "unplaced": {"type": "integer", "minimum": 0},
                "waiting_reports": {"type": "integer", "minimum": 0, "maximum": 4294967295},
                "exit_status": {"type": "integer", "minimum": -2147483648}, "memory_kills": {"type": "integer", "minimum": 0}}},
            "stalls": {"type": "array", "maxItems": 128, "items": {"$ref": "#/live/stall"}},
            "torn_stalls": {"type": "integer", "minimum": 0}}},
         "stall": {"type": "object",
            "required": ["report", "state", "rule", "watched", "watch", "started_at", "started_monotonic_ns", "detected_at",
              "last_seen_at", "last_seen_monotonic_ns", "duration_ns", "duration_min_ns", "duration_max_ns"],
            "properties": {"report": {"$ref": "#/$defs/ulid"},
              "state": {"type": "string", "examples": ["ongoing", "recovered"]},
              "rule": {"$ref": "#/properties/rule"}, "watched": {"$ref": "#/properties/watched"},
              "watch": {"type": "integer", "minimum": 0}, "thread_id": {"type": "integer", "maximum": 2147483647},
              "system_call": {"type": "integer"}, "started_at": {"$ref": "#/$defs/time"},
              "started_monotonic_ns": {"$ref": "#/$defs/ns"}, "detected_at": {"$ref": "#/$defs/time"},
              "last_seen_at": {"$ref": "#/$defs/time"}, "last_seen_monotonic_ns": {"$ref": "#/$defs/ns"},
              "duration_ns": {"$ref": "#/$defs/ns"}, "duration_min_ns": {"$ref": "#/$defs/ns"},
              "duration_max_ns": {"$ref": "#/$defs/ns"}}}}
        """
}
