package main

import (
	"context"

	"github.com/divvy-gpu/divvy/test/multiuser"
)

// server is a machine with eight GPUs and several users.
type server struct{ *multiuser.Server }

// openServer makes a server without an agent, whose machine is started with the flags
// given.
func openServer(ctx context.Context, build string, flags ...string) (*server, error) {
	s, err := multiuser.Open(build)
	if err != nil {
		return nil, err
	}
	if err := s.StartGPUs(ctx, flags...); err != nil {
		s.Close()
		return nil, err
	}
	return &server{s}, nil
}
