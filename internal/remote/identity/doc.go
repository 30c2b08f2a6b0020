// Package identity knows who is who between `divvy serve` and its clients: the authority of a server, the certificates that it
// signs, and what both sides accept. Each server has an authority of its own, which lies beside its file. A client has a bundle
// for each server, one file with all that it needs.
//
// Both sides speak TLS 1.3, offer [Protocol] alone and have a certificate of the same authority. A certificate is either a
// server's or a client's (extended key usage), and none serves as the other. A client's name is the common name of its certificate.
package identity

import (
	"errors"
	"time"
)

// Protocol is what both sides offer in TLS (ALPN). Sides of different protocols do not speak. It is raised when an older side
// would misunderstand a newer one.
const Protocol = "divvy-remote/1"

// Variable names the environment variable with the one directory in which clients look for bundles, in place of the usual ones.
const Variable = "DIVVY_REMOTE_DIR"

// Bounds of what is issued.
const (
	// skew is how far the clocks of two hosts may differ.
	skew = time.Hour
	// authorityFor is how long an authority and the certificate of its server are valid. The server's key lies beside that
	// of the authority, so a shorter time for the server would protect nothing.
	authorityFor = 10 * 365 * 24 * time.Hour
	// mostOfName is how long a client's name may be, in bytes.
	mostOfName = 253
	// mostHosts is how many names and addresses a server may have.
	mostHosts = 64
	// mostBytes bounds a file.
	mostBytes = 1 << 20
)

// Errors of files and of handshakes. Each is wrapped with what is wrong and what to do.
var (
	// ErrExists is an authority that is there already.
	ErrExists = errors.New("is there already")
	// ErrNone is an authority or a bundle that is not there.
	ErrNone = errors.New("not found")
	// ErrOpen is a private key that others can read, or that somebody else may have written.
	ErrOpen = errors.New("the private key is not only its owner's")
	// ErrInvalid is a file that does not hold what it should.
	ErrInvalid = errors.New("invalid")
	// ErrHosts are names and addresses that no server can have.
	ErrHosts = errors.New("wrong names of the server")
	// ErrTime is a certificate that is no longer valid, or not yet.
	ErrTime = errors.New("out of its time")
	// ErrRefused is a handshake that one side refused.
	ErrRefused = errors.New("refused")
)
