package wire

import "encoding/binary"

// HelloBytes is how long the hello is that a program and its worker say to each other first (lib/remote/link_hello.c). Whoever carries
// their bytes knows of them no more than what stands here.
const HelloBytes = 32

// Where a hello has its kind and its process, and the kind that is a stream.
const (
	helloKind    = 16
	helloProcess = 20
	helloStream  = 2
)

// ProcessOf is the process that a hello names, as the namespace of who said it numbers it; 0 for none.
func ProcessOf(hello []byte) uint32 { return binary.NativeEndian.Uint32(hello[helloProcess:]) }

// ToStream makes of a program's hello one that asks for a stream and names no process: what it may wish for instead, memory that both
// share, there is not between hosts, and its number means nothing on another one.
func ToStream(hello []byte) {
	binary.NativeEndian.PutUint32(hello[helloKind:], helloStream)
	binary.NativeEndian.PutUint32(hello[helloProcess:], 0)
}
