/// A server at rest without the monitor: what `Resting` is compared with.
@main struct Bare {
    static func main() async throws {
        print("ready")
        try await Task.sleep(for: .seconds(600))
    }
}
