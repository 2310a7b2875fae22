package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// loopback is the only address that this program listens on.
const loopback = "127.0.0.1"

// reservePort reserves a port of 127.0.0.1 for the supervisor's whole life, and returns a function that releases it.
// Port 0 means any free port.
//
// Tests kill and restart the API server, which must return at the same address, so no other program may take the port
// in between. A socket that is bound but does not listen reserves it: connections are refused, as if the server were
// dead, and a listener of the same user with SO_REUSEPORT (listenReserved) may share the port.
func reservePort(port int) (reserved int, release func(), err error) {
	if port != 0 {
		// A listener without SO_REUSEPORT fails if the port is used or reserved.
		probe, err := net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			return 0, nil, portError(port, err)
		}
		if err := probe.Close(); err != nil {
			return 0, nil, portError(port, err)
		}
	}
	syscall.ForkLock.RLock()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, nil, portError(port, err)
	}
	release = func() { _ = unix.Close(socket) }
	reserved, err = bindReserved(socket, port)
	if err != nil {
		release()
		return 0, nil, portError(port, err)
	}
	return reserved, release, nil
}

func bindReserved(socket, port int) (int, error) {
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	name, err := unix.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	address, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("socket has the address type %T", name)
	}
	return address.Port, nil
}

// portError adds to err which port it is and what to do.
func portError(port int, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d of %s is used by another program: stop it, or choose another port with --port", port,
			loopback)
	}
	return fmt.Errorf("reserving port %d of %s: %w", port, loopback, err)
}

// listenReserved opens the listener on a port that the supervisor has reserved.
func listenReserved(ctx context.Context, port int) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		return errors.Join(err, failed)
	}}
	listener, err := config.Listen(ctx, "tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return nil, portError(port, err)
	}
	return listener, nil
}
