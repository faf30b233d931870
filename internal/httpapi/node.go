package httpapi

import "net/http"

func (a *api) summary(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, a.Summary()+"\n")
}

// health says that this process works, whatever its role: a standby is as
// healthy as a primary.
func (a *api) health(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, "OK")
}

// ready says whether this node may be sent what clients ask: whether it
// serves. With role=standby it says whether the node holds a complete state,
// so that it serves or could take over.
func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	switch role := r.URL.Query().Get("role"); role {
	case "", "primary":
		if !a.Gate.Serves() {
			writeText(w, http.StatusServiceUnavailable, "not serving: this node is "+a.Status().Role+"\n")
			return
		}
	case "standby":
		if s := a.Status(); !s.Promotable {
			writeText(w, http.StatusServiceUnavailable, "not promotable: "+s.Why+"\n")
			return
		}
	default:
		writeText(w, http.StatusBadRequest, "role must be primary or standby\n")
		return
	}
	writeText(w, http.StatusOK, "OK")
}

// roleAnswer is the body of /role. Upstream answers "leader" or "standby" as
// text; there is more to say.
type roleAnswer struct {
	NodeID     string  `json:"node_id"`
	Role       string  `json:"role"`
	Term       uint64  `json:"term"`
	Serving    bool    `json:"serving"`
	Promotable bool    `json:"promotable"`
	Why        string  `json:"not_promotable_because,omitempty"`
	Leader     *Leader `json:"leader"` // null if none is known
}

func (a *api) role(w http.ResponseWriter, _ *http.Request) {
	s := a.Status()
	answer := roleAnswer{
		NodeID: s.NodeID, Role: s.Role, Term: s.Term, Serving: a.Gate.Serves(), Promotable: s.Promotable, Why: s.Why,
	}
	if s.Leader != (Leader{}) {
		answer.Leader = &s.Leader
	}
	writeJSON(w, http.StatusOK, answer)
}
