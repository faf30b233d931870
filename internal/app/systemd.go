package app

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/understudy-store/understudy/internal/clock"
)

// notifyEvery is how often this node reports to systemd, unless the watchdog needs more.
const notifyEvery = time.Second

// notifySystemd reports to the systemd that started this process, if one did: that
// the node is ready, which it is once it serves or could take over; what it does; and
// that it is alive. Before the last it takes the locks of the node and of its state, so
// that the watchdog ends a node that hangs.
func (a *App) notifySystemd(ctx context.Context) error {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	every := notifyEvery
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		a.log.Warn().Err(err).Msg("the watchdog of systemd is not fed")
	}
	if watchdog > 0 {
		every = min(every, watchdog/3)
	}
	tell := func(message string) {
		if err := tellSystemd(message); err != nil {
			a.log.Debug().Err(err).Msg("systemd takes no message from this node")
		}
	}
	defer tell(daemon.SdNotifyStopping)
	return clock.Every(ctx, every, func() error {
		tell(a.systemdState())
		return nil
	})
}

// tellSystemd sends a message to systemd. It waits for a second at most: the library's
// own function waits for ever if systemd reads no more.
func tellSystemd(message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: os.Getenv("NOTIFY_SOCKET"), Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetWriteDeadline(clock.Wall().Add(notifyEvery)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}

func (a *App) systemdState() string {
	if a.cfg.HA.Witness {
		return daemon.SdNotifyWatchdog + "\n" + daemon.SdNotifyReady + "\nSTATUS=has a member of etcd that votes, and no metadata"
	}
	s := a.httpNode()
	if store := a.node.Store(); store != nil {
		store.Figures() // waits for the commit that is being applied
	}
	message := daemon.SdNotifyWatchdog
	switch {
	case a.gate.Serves():
		return fmt.Sprintf("%s\n%s\nSTATUS=serves in term %d", message, daemon.SdNotifyReady, s.Term)
	case s.Promotable:
		return message + "\n" + daemon.SdNotifyReady + "\nSTATUS=could take over"
	default:
		return message + "\nSTATUS=" + s.Role + ", and could not take over: " + s.Why
	}
}
