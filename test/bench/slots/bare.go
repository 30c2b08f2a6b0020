package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/plane"
)

// bareProgram is a server that does nothing, as the plane calls it.
const bareProgram = "bare"

// answerHeader says how many bytes that server is to answer.
const answerHeader = "Bench-Answer"

// startBare starts this program again as a server that reads what it is sent over TLS, answers with as many bytes as it is told,
// and does nothing else. What that takes is the machine's: where it takes long, a question of the scheduler does too.
func (c *cluster) startBare(ctx context.Context) (address string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	process, err := c.Run(ctx, plane.Program{
		Name: bareProgram, Path: program, Ports: 1, Scheme: "https", Ready: plane.Answers("/"),
		Args: func(ports []int) []string { return []string{fmt.Sprintf("-bare=127.0.0.1:%d", ports[0])} },
	})
	if err != nil {
		return "", err
	}
	return process.URL(), nil
}

// serveBare is that server. It ends when it is killed.
func serveBare(address string) error {
	own, err := certificate(&x509.Certificate{}, nil)
	if err != nil {
		return err
	}
	answer := make([]byte, mostAnswer)
	server := &http.Server{
		Addr: address, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.Header.Get(answerHeader)) // nothing for who tells no number
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				_, _ = w.Write(answer[:min(max(n, 0), len(answer))])
			}
		}),
	}
	if err := server.ListenAndServeTLS("", ""); err != nil {
		return fmt.Errorf("answer bare round trips: %w", err)
	}
	return nil
}
