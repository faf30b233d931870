package httpapi

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/understudy-store/understudy/internal/service"
)

// summary answers the key figures in Mooncake's form, or in ours.
func (a API) summary(w http.ResponseWriter, _ *http.Request) {
	if a.Extended {
		writeText(w, http.StatusOK, a.Summary()+"\n")
		return
	}
	s := a.status()
	role, state := s.upstream()
	master, ha := a.MooncakeSummary()
	text := fmt.Sprintf("role=%s, state=%s, service_ready=%t, master={%s}, ha={%s}", role, state, s.Serving, master, ha)
	if s.Leader != nil {
		text += fmt.Sprintf(", leader=%s, view_version=%d", s.Leader.RPC, s.Term)
	}
	writeTextAs(w, figuresType, http.StatusOK, text)
}

// A leaderView is the elected node as upstream shows it: null for what is not known.
type leaderView struct {
	Address *string `json:"leader_address"`
	View    *uint64 `json:"view_version"` // the term
}

func (s NodeStatus) view() (v leaderView) {
	if s.Leader != nil {
		v.Address, v.View = &s.Leader.RPC, &s.Term
	}
	return v
}

// upstream returns the role and the state of high availability in upstream's words.
func (s NodeStatus) upstream() (role, state string) {
	switch {
	case s.Role == Witness:
		return Witness, Witness
	case s.Serving:
		return "leader", "serving"
	case s.Role == "electing":
		return "standby", "candidate"
	case s.Role == "stopping":
		return "standby", "starting"
	case s.Role != "standby": // it is elected, and does not serve
		return "leader", "leader_warmup"
	case !s.Promotable:
		return "standby", "recovering"
	}
	return "standby", "standby"
}

// health reports that this process works, whatever its role: a standby is as
// healthy as a primary.
func (a API) health(w http.ResponseWriter, _ *http.Request) {
	s := a.status()
	role, state := s.upstream()
	writeJSON(w, http.StatusOK, struct {
		Status string `json:"status"`
		Role   string `json:"role"`
		State  string `json:"ha_state"`
		Ready  bool   `json:"service_ready"`
		leaderView
	}{"ok", role, state, s.Serving, s.view()})
}

func (a API) role(w http.ResponseWriter, _ *http.Request) {
	role, _ := a.status().upstream()
	writeText(w, http.StatusOK, role)
}

func (a API) haStatus(w http.ResponseWriter, _ *http.Request) {
	_, state := a.status().upstream()
	writeText(w, http.StatusOK, state)
}

func (a API) leader(w http.ResponseWriter, _ *http.Request) {
	s := a.status()
	writeJSON(w, http.StatusOK, struct {
		Present bool `json:"present"`
		leaderView
	}{s.Leader != nil, s.view()})
}

func (a API) kvEvents(w http.ResponseWriter, _ *http.Request, _ *service.Master) error {
	writeJSON(w, http.StatusOK, a.KVEvents())
	return nil
}

// ready reports whether clients may call this node: whether it serves. With
// role=standby it reports whether the node has a complete state, so that it serves
// or could take over; with role=witness whether its member of etcd does its work.
func (a API) ready(w http.ResponseWriter, r *http.Request) {
	switch role := r.URL.Query().Get("role"); role {
	case "", "primary":
		if !a.Gate.Serves() {
			writeText(w, http.StatusServiceUnavailable, "not serving: "+a.Node().obstacle()+"\n")
			return
		}
	case "standby":
		if s := a.Node(); !s.Promotable {
			writeText(w, http.StatusServiceUnavailable, "not promotable: "+s.Why+"\n")
			return
		}
	case Witness:
		if s := a.Node(); s.Role != Witness || s.Why != "" {
			writeText(w, http.StatusServiceUnavailable, s.obstacle()+"\n")
			return
		}
	default:
		writeText(w, http.StatusBadRequest, "role must be primary, standby or witness\n")
		return
	}
	writeText(w, http.StatusOK, "OK")
}

// obstacle says why this node does not serve, and what to do.
func (s NodeStatus) obstacle() string {
	text := "this node is " + s.Role
	if why := cmp.Or(s.Obstacle, s.Why); why != "" {
		text += ": " + why
	}
	if s.Help != "" {
		text += "\nwhat to do: " + s.Help
	}
	return text
}

func (a API) node(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, a.status()) }

func (a API) status() NodeStatus {
	s := a.Node()
	s.Serving = a.Gate.Serves()
	return s
}
