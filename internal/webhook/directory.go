package webhook

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// certificates supplies the server's certificate.
type certificates interface {
	// certificate returns the one to serve with now, or an error while there is none.
	certificate() (*tls.Certificate, error)
}

// directory serves the certificate in the files tls.crt and tls.key of a directory. Somebody else renews the files. A
// pair that cannot be read, for example because only one file is replaced yet, leaves the previous pair in use.
type directory struct {
	path string
	now  func() time.Time
	log  *slog.Logger

	mu      sync.Mutex // guards what follows
	looked  time.Time
	texts   [2][]byte
	current *tls.Certificate
	fault   error
}

// lookAgain is the least time between two readings of the files.
const lookAgain = 5 * time.Second

// certificate implements [certificates].
func (d *directory) certificate() (*tls.Certificate, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.now(); d.looked.IsZero() || now.Sub(d.looked) >= lookAgain {
		d.looked = now
		d.read()
	}
	if d.current == nil {
		return nil, d.fault
	}
	return d.current, nil
}

func (d *directory) read() {
	var texts [2][]byte
	for i, name := range []string{keyCertificate, keyPrivate} {
		text, err := os.ReadFile(filepath.Join(d.path, name))
		if err != nil {
			d.failed(err)
			return
		}
		texts[i] = text
	}
	if d.current != nil && bytes.Equal(texts[0], d.texts[0]) && bytes.Equal(texts[1], d.texts[1]) {
		return
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		d.failed(fmt.Errorf("read the certificate in %s: %w", d.path, err))
		return
	}
	d.texts, d.current, d.fault = texts, &pair, nil
	d.log.Info("serving with a new certificate", "directory", d.path, "until", pair.Leaf.NotAfter)
}

func (d *directory) failed(err error) {
	if d.fault == nil || d.fault.Error() != err.Error() {
		d.log.Error("the certificate cannot be read", "error", err)
	}
	d.fault = err
}
