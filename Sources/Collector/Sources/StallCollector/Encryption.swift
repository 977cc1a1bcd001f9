import Hummingbird
import HummingbirdCore

#if TLS
    internal import HummingbirdTLS
#endif

/// The server's certificate and its private key, as PEM files.
public struct CertificateFiles: Hashable, Sendable {
    /// The server's certificate first, then those that vouch for it.
    public var chain: String
    public var key: String

    public init(chain: String, key: String) { (self.chain, self.key) = (chain, key) }
}

extension HTTPServerBuilder {
    /// Has the server speak TLS 1.2 or newer if it is given a certificate. The files are read once, now.
    ///
    /// - Throws: if they cannot be used, or if the collector was built without TLS.
    func encrypted(by files: CertificateFiles?) throws(CollectorError) -> HTTPServerBuilder {
        guard let files else { return self }
        return try encrypted(files)
    }

    #if TLS
        private func encrypted(_ files: CertificateFiles) throws(CollectorError) -> HTTPServerBuilder {
            do {
                let chain = try NIOSSLCertificate.fromPEMFile(files.chain)
                var configuration = TLSConfiguration.makeServerConfiguration(
                    certificateChain: chain.map { .certificate($0) },
                    privateKey: .privateKey(try NIOSSLPrivateKey(file: files.key, format: .pem))
                )
                configuration.minimumTLSVersion = .tlsv12
                configuration.applicationProtocols = ["http/1.1"]
                return try .tls(self, tlsConfiguration: configuration)
            } catch {
                throw CollectorError(
                    "the certificate \(files.chain), or its key \(files.key), cannot be used: \(error)"
                )
            }
        }
    #else
        private func encrypted(_: CertificateFiles) throws(CollectorError) -> HTTPServerBuilder {
            throw CollectorError(
                "this collector was built without TLS: build it with '--traits TLS', or let a proxy do it"
            )
        }
    #endif
}
