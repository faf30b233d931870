{{- define "understudy.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "understudy.selector" -}}
app.kubernetes.io/name: understudy
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "understudy.labels" -}}
{{ include "understudy.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "understudy.settings" -}}
etcd_endpoints: {{ required "etcd.endpoints is empty: give host:port of each member" .Values.etcd.endpoints | join ";" | quote }}
cluster_id: {{ .Values.clusterID | quote }}
journal-compact: {{ ternary "on" "auto" .Values.etcd.compact | quote }}
rpc_port: {{ .Values.ports.rpc }}
metrics_port: {{ .Values.ports.http }}
data-dir: /var/lib/understudy
log-format: json
{{- with .Values.settings }}
{{ toYaml . }}
{{- end }}
{{- end -}}
