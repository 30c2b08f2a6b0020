package relays

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent/dra"
	"github.com/divvy-gpu/divvy/internal/backend/remote"
	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/remote/identity"
	"github.com/divvy-gpu/divvy/internal/remote/relay"
	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// startTime bounds how long a share may take until it is there. The kubelet waits 45 s.
const startTime = 30 * time.Second

// start makes the folder of a share and starts its relay, which takes it. After an error nothing is left of both.
func (k *Keeper) start(ctx context.Context, c remote.Contained, want dra.RemoteShare) (ready *relay.Ready, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("host %s took longer than %v to give the share", want.Host, startTime))
	defer cancel()
	permit, err := k.options.Certify(ctx, want)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(c.Dir))
		}
	}()
	if err := makeFolders(k.options.Dir, c); err != nil {
		return nil, err
	}
	if err := writeBundle(c.Dir, permit.Bundle); err != nil {
		return nil, err
	}
	spec := relay.Spec{
		Hosts: []string{want.Host}, Bundle: filepath.Join(c.Dir, bundleName), Address: permit.Address.String(), Everybody: true, Dir: c.Dir, Socket: c.Socket(),
		Take: wire.Take{
			Request: want.Request, Host: k.options.Node, User: want.Name, Command: want.Pods,
			Claim: fmt.Sprintf("%s/%s/%s", want.Namespace, want.ClaimName, want.Claim),
		},
	}
	id, answers, err := k.run(c.Dir, spec)
	if err != nil {
		return nil, err
	}
	defer answers.Close()
	interrupt := context.AfterFunc(ctx, func() { _ = answers.SetReadDeadline(time.Now()) })
	defer interrupt()
	ready, err = relay.Listen(answers, func(string) {})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, stop(context.WithoutCancel(ctx), id))
	}
	return ready, nil
}

// makeFolders makes the folders of a share. What containers see is open to their users.
func makeFolders(place string, c remote.Contained) error {
	for _, folder := range []struct {
		path string
		mode os.FileMode
	}{{place, 0o700}, {c.Dir, 0o700}, {relay.RecordFolder(c.Dir), 0o700}, {c.Client(), 0o755}} {
		err := os.MkdirAll(folder.path, folder.mode)
		if err == nil {
			err = os.Chmod(folder.path, folder.mode) // whatever the umask
		}
		if err != nil {
			return fmt.Errorf("make the folder of a share: %w", err)
		}
	}
	return nil
}

// run starts a relay. It is this process's child, and lives on without it.
func (k *Keeper) run(dir string, spec relay.Spec) (id process.ID, answers *os.File, err error) {
	var open []*os.File
	defer func() {
		for _, file := range open {
			_ = file.Close() // those of the child
		}
		if err != nil {
			err = fmt.Errorf("%w: %w", launch.ErrRelay, err)
		}
	}()
	take := func(file *os.File, fault error) *os.File {
		if fault == nil {
			open = append(open, file)
		}
		err = errors.Join(err, fault)
		return file
	}
	life := take(openLife(filepath.Join(dir, lifeName)))
	lock := take(relay.Lock(dir))
	log := take(os.OpenFile(filepath.Join(dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))
	answers, said, pipe := os.Pipe()
	take(said, pipe)
	told, what, pipe := os.Pipe()
	take(told, pipe)
	if err != nil {
		return process.ID{}, nil, errors.Join(err, closed(answers), closed(what))
	}
	cmd := &exec.Cmd{
		Path: k.options.Divvy, Args: []string{k.options.Divvy, launch.RelayCommand}, Env: environment(os.Environ()), Dir: "/", Stdout: log, Stderr: log,
		ExtraFiles: []*os.File{life, said, told, lock}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return process.ID{}, nil, errors.Join(err, closed(answers), closed(what))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its record says how
	}()
	id, err = process.Find(cmd.Process.Pid)
	if err == nil && k.options.Apart != nil {
		err = k.options.Apart(id)
	}
	if err == nil {
		spec.Process = id
		err = json.NewEncoder(what).Encode(spec)
	}
	if err = errors.Join(err, closed(what)); err != nil {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		return process.ID{}, nil, errors.Join(err, closed(answers))
	}
	return id, answers, nil
}

// openLife opens a pipe whose two ends one process has, so that it never ends while that lives.
func openLife(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

func closed(file *os.File) error {
	if file == nil {
		return nil
	}
	return file.Close()
}

// environment is what a relay has of the agent's: where Divvy lies, and nothing that the cluster put there.
func environment(all []string) (kept []string) {
	for _, entry := range all {
		name, _, _ := strings.Cut(entry, "=")
		switch {
		case name == "PATH", name == "HOME", strings.HasPrefix(name, "DIVVY_"):
			kept = append(kept, entry)
		}
	}
	return kept
}

// stop ends a relay and returns when it has ended.
func stop(ctx context.Context, id process.ID) error {
	done, release, err := id.Watch()
	if err != nil {
		if !id.Alive() {
			return nil
		}
		return err
	}
	defer release()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := id.Signal(signal); err != nil && id.Alive() {
			return err
		}
		late := time.NewTimer(endTime)
		select {
		case <-done:
			late.Stop()
			return nil
		case <-late.C:
		case <-ctx.Done():
			late.Stop()
			return ctx.Err()
		}
	}
	return fmt.Errorf("process %d does not end", id.PID)
}

// writeBundle puts a bundle where the relay reads it for its next connection.
func writeBundle(dir string, b *identity.Bundle) error {
	text, err := b.Encode()
	if err != nil {
		return err
	}
	return identity.Replace(filepath.Join(dir, bundleName), text, 0o600)
}

// retryTime is the time between two tries to renew a certificate.
const retryTime = time.Minute

// renewal is when the certificate of a share is to be renewed: after half of its time.
func (k *Keeper) renewal(key string) time.Time {
	now := time.Now()
	b, err := identity.ReadBundle(filepath.Join(k.folder(key), bundleName))
	if err != nil {
		return now
	}
	return now.Add(time.Until(b.NotAfter()) / 2)
}

// renew renews the certificate of a share. One that has run out keeps new processes from the share, and no others.
func (k *Keeper) renew(ctx context.Context, f follower) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	permit, err := k.options.Certify(ctx, f.share)
	if err == nil {
		err = writeBundle(k.folder(f.share.Key), permit.Bundle)
	}
	next := time.Now().Add(retryTime)
	if err != nil {
		k.options.Log.WarnContext(ctx, "cannot renew the certificate of a share on another host", "claim", f.share.Name, "host", f.share.Host, "error", err)
	} else {
		next = k.renewal(f.share.Key)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now, ok := k.followed[f.share.Key]; ok {
		now.renew = next
		k.followed[f.share.Key] = now
	}
}
