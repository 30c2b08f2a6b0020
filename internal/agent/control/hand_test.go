package control

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"testing"
)

// descriptors are those of this process.
func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			names = append(names, to)
		}
	}
	return names
}

// A worker's life arrives with the answer, is closed here by then, and is nobody's if who asked does not take it.
func TestLifeIsHandedOver(t *testing.T) {
	theirs := make(chan *os.File, 1)
	hand := true
	socket := serve(t, map[Method]Handler{
		MethodCreate: Handle(func(context.Context, *Peer, CreateParams) (*Created, error) {
			r, w, err := os.Pipe()
			if err != nil {
				return nil, err
			}
			theirs <- r
			c := &Created{Tenant: Tenant{ID: "x"}}
			if c.Serve(w); !hand {
				c.life = nil
				return c, w.Close()
			}
			return c, nil
		}),
		MethodList: Handle(func(context.Context, *Peer, struct{}) (*Listing, error) { return &Listing{}, nil }),
	})
	c := dial(t, socket)
	for range 3 {
		created, err := c.Create(t.Context(), CreateParams{}, nil)
		if err != nil || !created.Served || created.Hand() == nil {
			t.Fatalf("%+v, %v", created, err)
		}
		if _, err := c.List(t.Context()); err != nil {
			t.Error(err)
		}
		r := <-theirs
		if _, err := created.Hand().WriteString("alive"); err != nil {
			t.Error(err)
		}
		if err := created.Hand().Close(); err != nil {
			t.Error(err)
		}
		// It ends only if nobody else has it.
		if text, err := io.ReadAll(r); err != nil || string(text) != "alive" {
			t.Errorf("%q, %v", text, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	hand = false
	if _, err := c.Create(t.Context(), CreateParams{}, nil); err == nil {
		t.Error("an answer without the life that it tells is taken")
	}
	_ = (<-theirs).Close()
}

// What nobody took is closed with the connection.
func TestLifeThatNobodyTakes(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(w.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	socket := serve(t, map[Method]Handler{
		MethodStop: Handle(func(context.Context, *Peer, StopParams) (*Created, error) {
			c := &Created{}
			c.Serve(w)
			return c, nil
		}),
	})
	c := dial(t, socket)
	if err := c.Stop(t.Context(), StopParams{}); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if text, err := io.ReadAll(r); err != nil || len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
	if err := r.Close(); err != nil || slices.Contains(descriptors(t), pipe) {
		t.Errorf("%v, or a descriptor is left", errors.Join(err))
	}
}
