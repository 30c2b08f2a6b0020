package wire

import (
	"bytes"
	"io"
	"testing"
)

// Bytes through frames against bytes through the encryption alone.
func BenchmarkStream(b *testing.B) {
	const size = 64 << 20
	text := make([]byte, size)
	for name, way := range map[string]func(from, to *Conn, r io.Reader) error{
		"frames": func(from, to *Conn, r io.Reader) error {
			sent := make(chan error, 1)
			go func() { sent <- from.Carry(0, r) }()
			if err := to.Pour(0, io.Discard); err != nil {
				return err
			}
			return <-sent
		},
		"bare": func(from, to *Conn, r io.Reader) error {
			sent := make(chan error, 1)
			go func() {
				_, err := io.CopyBuffer(from.tls, struct{ io.Reader }{r}, make([]byte, MaxData))
				sent <- err
			}()
			if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(to.tls, size), make([]byte, pieceRoom)); err != nil {
				return err
			}
			return <-sent
		},
	} {
		b.Run(name, func(b *testing.B) {
			server, client := pair(b)
			b.SetBytes(size)
			for b.Loop() {
				if err := way(client, server, bytes.NewReader(text)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
