package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// dispatch does what a client has connected for.
func (s *Server) dispatch(ctx context.Context, who Client, open wire.Open, w *wire.Conn) {
	var err error
	switch open.Purpose {
	case wire.PurposeInventory:
		err = s.inventory(ctx, who, w)
	case wire.PurposeShare:
		if open.Take == nil {
			err = &wire.Refused{Code: wire.CodeMessage, Text: "a share is asked for without saying which"}
		} else {
			err = s.share(ctx, who, *open.Take, w)
		}
	case wire.PurposeLink:
		err = s.link(ctx, who, open.Share, w)
	case wire.PurposeCommand:
		err = s.command(ctx, who, open, w)
	default:
		err = &wire.Refused{Code: wire.CodeMessage, Text: fmt.Sprintf("this server does not do what client %s asks for (%s): install the same version of Divvy on both", who.Name, short(string(open.Purpose)))}
	}
	if err != nil {
		s.lines.Warn(ctx, s.Log, who.Name, "refused", "address", who.Address, "purpose", short(string(open.Purpose)), "why", short(err.Error()))
		s.refuse(w, err)
	}
}

func (s *Server) inventory(ctx context.Context, who Client, w *wire.Conn) error {
	inventory, err := s.Host.Inventory(ctx, who)
	if err != nil {
		return err
	}
	s.last(w, wire.Answer{Inventory: inventory})
	return nil
}

// share takes a share that lasts until its connection or itself ends. The error is a refusal.
func (s *Server) share(ctx context.Context, who Client, take wire.Take, w *wire.Conn) error {
	asking, giveUp := context.WithCancel(ctx)
	defer giveUp()
	go func() { // who asks says nothing more, but may end
		_, _ = w.Read()
		giveUp()
		w.Drain()
	}()
	told := func(q wire.Queued) { _ = w.Send(wire.Answer{Queued: &q}) } // one that has ended gives up
	taken, err := s.Host.Take(asking, who, take, told)
	switch {
	case err != nil && asking.Err() != nil && ctx.Err() == nil:
		s.lines.Info(ctx, s.Log, who.Name, "gave up", "address", who.Address, "why", s.why(w))
		return nil
	case err != nil && ctx.Err() != nil:
		return &wire.Refused{Code: wire.CodeHost, Text: endsText}
	case err != nil:
		return err
	}
	held := s.shares.add(who.Name, taken)
	granted := taken.Granted()
	granted.Secret = held.secret
	s.lines.Info(ctx, s.Log, who.Name, "took a share", "address", who.Address, "share", granted.Name, "id", granted.ID,
		"memory", granted.Memory, "cores", granted.Cores, "gpus", strings.Join(granted.UUIDs, ","), "host", short(take.Host), "user", short(take.User))
	why := ""
	if err := w.Send(wire.Answer{Granted: &granted}); err != nil {
		why = err.Error()
	} else {
		select {
		case ended := <-taken.Ended():
			why = ended.Text
			go w.Last(wire.Answer{Ended: &ended})
		case <-asking.Done():
			why = s.part(ctx, w)
		}
	}
	s.shares.remove(held)
	taken.End()
	held.links.Wait()
	<-w.Done()
	s.lines.Info(ctx, s.Log, who.Name, "ended a share", "address", who.Address, "share", granted.Name, "id", granted.ID, "why", short(why))
	return nil
}

// part ends the connection of a share whose server or client ends, and says why. The server's end is told.
func (s *Server) part(ctx context.Context, w *wire.Conn) (why string) {
	if ctx.Err() != nil {
		w.Last(wire.Answer{Ended: &wire.Ended{Text: endsText}})
		return endsText
	}
	why = s.why(w)
	_ = w.Close()
	return why
}

// endsText is why shares end with their server.
const endsText = "the server of the GPU's host ends"

// why says why a client's connection ended.
func (s *Server) why(w *wire.Conn) string {
	err := w.Err()
	if err == nil {
		return "the client said more than it may"
	}
	if errors.Is(err, wire.ErrSilent) || errors.Is(err, wire.ErrFrame) {
		return err.Error()
	}
	return "the client ended: " + err.Error()
}

// command runs a command. The error is a refusal.
func (s *Server) command(ctx context.Context, who Client, open wire.Open, w *wire.Conn) error {
	if open.Take == nil || open.Command == nil {
		return &wire.Refused{Code: wire.CodeMessage, Text: "a command is asked for without saying which"}
	}
	s.lines.Info(ctx, s.Log, who.Name, "runs a command", "address", who.Address, "command", nameOf(open.Command.Args),
		"directory", short(string(open.Command.Directory.Path)), "host", short(open.Take.Host), "user", short(open.Take.User))
	err := s.Host.Command(ctx, who, *open.Take, *open.Command, w)
	if refused := new(wire.Refused); errors.As(err, &refused) {
		return refused
	}
	why := "it ended"
	if err != nil {
		why = err.Error()
	}
	s.lines.Info(ctx, s.Log, who.Name, "ended a command", "address", who.Address, "command", nameOf(open.Command.Args), "why", short(why))
	return nil
}
