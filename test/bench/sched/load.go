package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// What somebody does to the webhook who may reach its port.
const (
	idleConnections = 1000
	bodySenders     = 40
	bodyBytes       = 7 << 20
)

// reviewUnderLoad sends honest reviews while idle connections stand and large bodies arrive. One that is refused or gets
// no answer counts as one that took as long as the API server waits.
func (w *webhook) reviewUnderLoad(ctx context.Context, namespace string, n int) (took taken, err error) {
	body, err := podReview(namespace)
	if err != nil {
		return took, err
	}
	loading, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	idle := w.connectIdly()
	defer idle.close()
	large := []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","name":"` +
		strings.Repeat("a", bodyBytes-200) + `"}}`)
	for range bodySenders {
		group.Go(func() { w.sendBodies(loading, large) })
	}
	for end := time.Now().Add(loadedLimit); len(took.reviews) < n && time.Now().Before(end); {
		review, err := timed(func() error { return w.send(ctx, fresh, body) })
		if err != nil {
			review = apiWaits
		}
		bare, err := timed(func() error { return askBare(ctx, fresh, w.bare, body) })
		if err != nil {
			return took, err
		}
		took.reviews, took.bare = append(took.reviews, review), append(took.bare, bare)
	}
	return took, ctx.Err()
}

// sendBodies sends one large body after the other, whatever is answered.
func (w *webhook) sendBodies(ctx context.Context, body []byte) {
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.reviews+"/mutate-pods", bytes.NewReader(body))
		if err != nil {
			return
		}
		if answer, err := fresh.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	}
}

// idleOnes are connections on which nothing is said.
type idleOnes []net.Conn

func (i idleOnes) close() {
	for _, conn := range i {
		_ = conn.Close()
	}
}

// connectIdly opens connections; every second one has agreed on keys. How many stand is the server's to decide.
func (w *webhook) connectIdly() idleOnes {
	var all idleOnes
	address := fmt.Sprintf("127.0.0.1:%d", w.Port(1))
	dialer := &net.Dialer{Timeout: time.Second}
	for i := range idleConnections {
		conn, err := dialer.Dial("tcp", address)
		if err != nil {
			continue
		}
		if i%2 == 0 {
			keyed := tls.Client(conn, trusting())
			_ = conn.SetDeadline(time.Now().Add(time.Second))
			if keyed.Handshake() == nil {
				_ = conn.SetDeadline(time.Time{})
			}
		}
		all = append(all, conn)
	}
	return all
}
