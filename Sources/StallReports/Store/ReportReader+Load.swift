extension ReportReader {
    /// Reads one file, and says what became of its process.
    func load<Document: MortalDocument>(
        _ name: ReportFileName,
        in directory: borrowing OpenDirectory
    ) throws(ReportError) -> Document {
        let path = directory.filePath(name.description)
        do throws(ReportError) {
            let bytes = try directory.openFile(name.description).readAll(limit: Self.maximumFileSize)
            let document = try Document(json: bytes)
            guard document.id == name.id else {
                throw ReportError(.malformed, detail: "its id is not the one in its name")
            }
            guard document.isPossible else { throw ReportError(.malformed, detail: "a duration is negative") }
            return document.closed(by: liveness) ?? document
        } catch {
            throw ReportError(error.code, path: path, detail: error.detail, errorNumber: error.errorNumber)
        }
    }

    /// Whether nobody will write this file again. One that cannot be understood counts as finished.
    func isFinished(_ name: ReportFileName, in directory: borrowing OpenDirectory) -> Bool {
        do throws(ReportError) {
            switch name.content {
            case .stall: return try (load(name, in: directory) as StallReport).state != .ongoing
            case .run: return try (load(name, in: directory) as RunRecord).state != .running
            }
        } catch {
            return error.code != .permissionDenied && error.code != .io
        }
    }
}
