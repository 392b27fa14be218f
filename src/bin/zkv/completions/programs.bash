
# The options of bake, serve, and saturate are those of the programs that these commands run.
_zkv_programs() {
    local program=
    case ${COMP_WORDS[1]} in
    bake) program=baker ;;
    serve) program=kv_store ;;
    saturate) program=benchmarker ;;
    esac
    if [[ -z $program || $COMP_CWORD -lt 2 ]]; then
        _zkv "$@"
        return
    fi
    if ! declare -F "_$program" >/dev/null; then
        # The loader of bash-completion had another name before version 2.12.
        { _comp_load "$program" || _completion_loader "$program"; } 2>/dev/null
        declare -F "_$program" >/dev/null || return 0
    fi
    COMP_WORDS=("$program" "${COMP_WORDS[@]:2}")
    COMP_CWORD=$((COMP_CWORD - 1))
    "_$program" "$program" "$2" "$3"
}

# Before bash 4.4, there is no option nosort.
complete -F _zkv_programs -o nosort -o bashdefault -o default zkv 2>/dev/null ||
    complete -F _zkv_programs -o bashdefault -o default zkv
