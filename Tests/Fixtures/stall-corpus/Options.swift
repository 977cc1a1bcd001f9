import StallCorpus
import StallReports

/// The command line options.
struct Options {
    var isJSON = false
    var lists = false
    var scenarios = Scenario.all
    var load = 0
    var quota: Int?
    var soakSeconds: Int?
    var retries = 0
    var jobs = 1
    var directory: String?
    var hostDirectory: String?

    /// Nil if the arguments are invalid.
    init?(_ arguments: some Collection<String>) {
        var rest = arguments.makeIterator()
        while let option = rest.next() {
            if option == "--list" {
                lists = true
            } else if let value = rest.next() {
                guard take(option, value) else { return nil }
            } else {
                return nil
            }
        }
    }

    private mutating func take(_ option: String, _ value: String) -> Bool {
        let names = value.split(separator: ",").map(String.init)
        switch option {
        case "--format": isJSON = value == "json"
        case "--only": scenarios = scenarios.filter { names.contains($0.name) }
        case "--part": scenarios = scenarios.filter { names.contains($0.part.rawValue) }
        case "--load": load = Int(value) ?? -1
        case "--quota": quota = Int(value) ?? -1
        case "--retries": retries = Int(value) ?? -1
        case "--jobs": jobs = Int(value) ?? 0
        case "--keep": directory = value
        case "--host": hostDirectory = value
        case "--soak": soakSeconds = DurationText(value).map { Int($0.nanoseconds / 1_000_000_000) } ?? -1
        default: return false
        }
        return load >= 0 && jobs > 0 && retries >= 0 && (quota ?? 1) > 0 && (soakSeconds ?? 1) > 0 && !scenarios.isEmpty
            && (option != "--format" || ["text", "json"].contains(value))
    }
}
